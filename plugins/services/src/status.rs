//! Errors as gRPC statuses; the codes are those of [`core_types::ErrorKind::code`].

use core_types::{Error, ErrorKind};
use tonic::{Code, Status};

/// The gRPC code of a kind.
pub fn code(kind: ErrorKind) -> Code {
    Code::from_i32(kind.code())
}

/// An error as the status that clients get. The longest text is bounded: it travels in a header.
pub fn status(error: Error) -> Status {
    const LONGEST: usize = 3072;
    let mut message = error.message();
    if message.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|&at| message.is_char_boundary(at)).unwrap_or(0);
        message = &message[..end];
    }
    Status::new(code(error.kind()), message)
}

/// The field of a request that has to be there.
///
/// # Errors
/// InvalidArgument that names it.
pub fn required<T>(field: Option<T>, name: &str) -> Result<T, Status> {
    field.ok_or_else(|| Status::invalid_argument(format!("{name} required")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_keep_their_code_and_long_texts_are_cut() {
        let cases = [
            (Error::not_found("x"), Code::NotFound),
            (Error::already_exists("x"), Code::AlreadyExists),
            (Error::unavailable("x"), Code::Unavailable),
            (Error::data_loss("x"), Code::DataLoss),
        ];
        for (error, code) in cases {
            assert_eq!(status(error).code(), code);
        }
        let long = status(Error::internal("é".repeat(10_000)));
        assert!(long.message().len() <= 3072 && long.message().starts_with("éé"));
    }
}
