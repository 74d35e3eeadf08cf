//! Credentials: tokens that are kept as hashes, with scopes, that expire, rotate and are revoked.
//!
//! Start at [`Guard`], which stands before a log: it gives credentials and tells of a token who asks with it. [`Token`] is the
//! secret itself, and [`Book`] what the log says of all credentials, without IO. This crate knows no header and no socket: an
//! interface takes the token from where its protocol has it.
//!
//! The credentials of a store are a log of their own in it. So every process that shares the store knows the same ones, a
//! revocation counts for the next request wherever that comes in, and who gave what to whom is audited with everything else.
//!
//! ```
//! use formwork_auth::{Book, Refusal, Token};
//! use formwork_protocols::{
//!     BlobHash, Clock as _, CredentialId, Event, EventBody, Position, Principal, RunId, Scope,
//!     SystemClock, SystemRng,
//!     event::{CredentialIssued, CredentialOrigin},
//! };
//!
//! let id = CredentialId::generate(&SystemClock, &SystemRng);
//! let token = Token::generate(id, &SystemRng);
//! let ada = Principal::parse("user:ada")?;
//! let issued = CredentialIssued {
//!     credential: id,
//!     to: ada.clone(),
//!     scopes: vec![Scope::Read],
//!     hash: token.hash(),
//!     origin: CredentialOrigin::Added,
//!     expires: None,
//! };
//! let mut book = Book::default();
//! book.take(&Event {
//!     position: Position(1),
//!     run: RunId::of_credentials(),
//!     seq: 1,
//!     task: None,
//!     principal: ada.clone(),
//!     at: SystemClock.now(),
//!     body: EventBody::CredentialIssued(issued),
//!     idempotency_key: None,
//!     hash: BlobHash::of(b""),
//! });
//!
//! assert_eq!(book.admit(&token, SystemClock.now())?.principal, ada);
//! let guessed = Token::generate(id, &SystemRng);
//! assert_eq!(book.admit(&guessed, SystemClock.now()), Err(Refusal::Unknown));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod token; // The secret.

mod book; // What the log says of all credentials.
mod guard; // And whoever asks it.

mod error;

pub use {
    book::{Book, Credential, Standing},
    error::{Error, Refusal},
    guard::{Admitted, Grant, Guard},
    token::{PREFIX, Token},
};
