use std::{
    fs::File,
    io::{self, IsTerminal as _},
    os::fd::{AsFd as _, OwnedFd},
};

use nix::sys::termios::{self, SetArg, Termios};

use crate::{Error, Result};

/// The terminal this program runs in. In raw mode it is set back when dropped.
#[derive(Debug)]
pub struct Terminal {
    device: OwnedFd,
    before: Option<Termios>,
}

impl Terminal {
    /// The terminal behind standard input, output or error.
    ///
    /// # Errors
    /// FailedPrecondition when none of them is one.
    pub fn current() -> Result<Self> {
        let candidates = [
            io::stdin().is_terminal().then(|| io::stdin().as_fd().try_clone_to_owned()),
            io::stdout().is_terminal().then(|| io::stdout().as_fd().try_clone_to_owned()),
            io::stderr().is_terminal().then(|| io::stderr().as_fd().try_clone_to_owned()),
        ];
        match candidates.into_iter().flatten().next() {
            Some(device) => {
                Ok(Self { device: device.map_err(|error| Error::io("use terminal", error))?, before: None })
            }
            None => Err(core_types::Error::failed_precondition(
                "a terminal is asked for, but standard input, output and error are none; leave out --tty",
            )
            .into()),
        }
    }

    /// Passes every key on as it is until this value is dropped.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_raw(&mut self) -> Result<()> {
        let failed = |error: nix::errno::Errno| Error::io("set terminal to raw mode", error.into());
        let before = termios::tcgetattr(&self.device).map_err(failed)?;
        let mut raw = before.clone();
        termios::cfmakeraw(&mut raw);
        termios::tcsetattr(&self.device, SetArg::TCSANOW, &raw).map_err(failed)?;
        self.before.get_or_insert(before);
        Ok(())
    }

    /// Columns and rows; `None` when the terminal has no size.
    pub fn size(&self) -> Option<(u32, u32)> {
        let size = rustix::termios::tcgetwinsize(&self.device).ok()?;
        (size.ws_col > 0 && size.ws_row > 0).then(|| (u32::from(size.ws_col), u32::from(size.ws_row)))
    }

    /// The device, to read keys from and write to.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn file(&self) -> Result<File> {
        let device = self.device.try_clone().map_err(|error| Error::io("use terminal", error))?;
        Ok(File::from(device))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // Nothing can be done about a terminal that is gone.
            let _ = termios::tcsetattr(&self.device, SetArg::TCSANOW, before);
        }
    }
}
