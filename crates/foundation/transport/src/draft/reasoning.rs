//! Reasoning that its provider vouches for.

use super::{Draft, DraftPart};

impl Draft {
    /// Signs the reasoning that was just added.
    pub(crate) fn sign_reasoning(&mut self, signed: &str) {
        self.changed();
        match self.parts.last_mut() {
            Some(DraftPart::Reasoning { signature: signature @ None, redacted: false, .. }) => {
                *signature = Some(signed.to_owned());
            }
            _ => self.add_signature(signed),
        }
    }

    /// Adds a signature that stands for itself, because the text that it signs is not shown.
    pub(crate) fn add_signature(&mut self, signed: &str) {
        self.changed();
        self.bytes += signed.len(); // It is about as long as what it stands for.
        self.parts.push(DraftPart::Reasoning {
            text: String::new(),
            signature: Some(signed.to_owned()),
            redacted: false,
        });
    }

    /// Adds reasoning of which the provider gives only the encrypted form.
    pub(crate) fn add_redacted_reasoning(&mut self, encrypted: &str) {
        self.changed();
        self.bytes += encrypted.len();
        self.parts.push(DraftPart::Reasoning {
            text: String::new(),
            signature: Some(encrypted.to_owned()),
            redacted: true,
        });
    }
}
