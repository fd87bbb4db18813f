//! `google.protobuf.Any` as containerd writes it: the type URL is the bare message name.

use prost::Message;
use prost_types::Any;

/// Packs `message` under the type URL `name`, for example `containerd.runc.v1.Options`.
pub fn pack<M: Message>(name: &str, message: &M) -> Any {
    Any { type_url: name.to_owned(), value: message.encode_to_vec() }
}

/// Whether `any` holds a message called `name`, with or without a host part in the URL.
pub fn is(any: &Any, name: &str) -> bool {
    any.type_url.rsplit('/').next() == Some(name)
}

/// Unpacks a message called `name`.
///
/// # Errors
/// When the type is another or the bytes are no such message.
pub fn unpack<M: Message + Default>(name: &str, any: &Any) -> Result<M, prost::DecodeError> {
    if !is(any, name) {
        return Err(prost::DecodeError::new_unexpected_type_url(&any.type_url, name));
    }
    M::decode(any.value.as_slice())
}
