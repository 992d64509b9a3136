//! A family that a killed copy left under its name: the bytes to write are compared with it.

use super::{DeviceAccount, Sink, out_of_order};
use crate::error::{Error, Result};
use crate::pool::Piece;
use crate::supply::Supply;

/// A sink that writes nothing. It accepts the bytes that are under its name already, byte for byte, and refuses
/// anything else.
pub struct StandingSink {
    supply: Box<dyn Supply>,
    size: u64,
    length: u64,
    stands: Vec<u8>,
}

impl StandingSink {
    /// Over the family that `supply` reads.
    ///
    /// # Errors
    /// It is a pipe.
    pub fn new(supply: Box<dyn Supply>) -> Result<Self> {
        let Some(size) = supply.size() else { return Err(out_of_order(supply.device(), "a pipe holds no family")) };
        Ok(Self { supply, size, length: 0, stands: Vec::new() })
    }

    fn differs(&self, offset: u64) -> Error {
        Error::refused(
            self.supply.device(),
            format!("exists already, from a killed copy, and differs at byte {offset} from the set to copy"),
            "remove it, and copy again",
        )
    }
}

impl Sink for StandingSink {
    fn device(&self) -> &str {
        self.supply.device()
    }

    fn write(&mut self, offset: u64, piece: Piece) -> Result<()> {
        if offset != self.length {
            return Err(out_of_order(self.supply.device(), format!("a write at {offset} came after {}", self.length)));
        }
        self.stands.resize(piece.len(), 0);
        let read = self.supply.read_at(offset, &mut self.stands)?;
        let same = self.stands[..read].iter().zip(piece.iter()).take_while(|(stands, comes)| stands == comes).count();
        if same < piece.len() {
            return Err(self.differs(offset + same as u64));
        }
        self.length += piece.len() as u64;
        Ok(())
    }

    fn settle(&mut self, _: usize) -> Result<()> {
        Ok(())
    }

    fn in_flight(&self) -> usize {
        0
    }

    fn sync(&mut self) -> Result<()> {
        if self.length == self.size { Ok(()) } else { Err(self.differs(self.length)) }
    }

    fn publish(&mut self) -> Result<()> {
        Ok(())
    }

    fn retire(&mut self) -> Result<()> {
        Ok(())
    }

    fn abandon(&mut self) {}

    fn account(&self) -> DeviceAccount {
        self.supply.account()
    }

    #[cfg(any(test, feature = "testkit"))]
    fn die(&mut self) {}
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;
    use crate::io::Mode;
    use crate::pool::Pool;
    use crate::supply::FileSupply;

    fn piece(pool: &std::sync::Arc<Pool>, fill: u8) -> Piece {
        let mut buffer = pool.take().unwrap();
        buffer.fill(fill);
        Piece::new(buffer, 0..4096)
    }

    #[test]
    fn an_identical_object_is_accepted_and_a_different_one_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.bore");
        fs::write(&path, [[7_u8; 4096], [8; 4096]].concat()).unwrap();
        let pool = Pool::new(2, 4096).unwrap();
        let open = || {
            let supply = FileSupply::open("a.bore", &path, &pool, 1, Mode::Buffered).unwrap();
            StandingSink::new(Box::new(supply)).unwrap()
        };
        let mut same = open();
        same.write(0, piece(&pool, 7)).unwrap();
        assert!(same.sync().is_err(), "half of it is not all of it");
        same.write(4096, piece(&pool, 8)).unwrap();
        same.sync().unwrap();
        same.publish().unwrap();
        same.abandon();
        assert_eq!(fs::metadata(&path).unwrap().len(), 8192, "it is never removed");
        let mut other = open();
        other.write(0, piece(&pool, 7)).unwrap();
        let error = other.write(4096, piece(&pool, 9)).unwrap_err().to_string();
        assert!(error.contains("byte 4096"), "{error}");
        let mut longer = open();
        longer.write(0, piece(&pool, 7)).unwrap();
        longer.write(4096, piece(&pool, 8)).unwrap();
        assert!(longer.write(8192, piece(&pool, 0)).is_err());
    }
}
