//! What Formwork's tests share: real components that are cheap to start and leave nothing behind.
//!
//! Start at [`http::Server`] for a provider that speaks captured bytes, at [`repo::Repo`] for a
//! real git repository, and at [`postgres::Postgres`] for a database of one test's own. There are
//! no mocks here: what a test meets is what production meets, made small.
//!
//! This crate depends on `formwork-protocols` and on no other crate of the workspace, so every
//! crate may use it as a dev-dependency.
//!
//! ```
//! let repo = formwork_testkit::repo::Repo::new()?;
//! repo.write("src/lib.rs", "pub fn two() -> u8 { 3 }\n")?;
//! let first = repo.commit("lib: count to two")?;
//!
//! assert_eq!(repo.head()?, first);
//! # Ok::<(), formwork_testkit::repo::Error>(())
//! ```

pub mod between; // A store with something before it.
pub mod chromium; // The browser of the machine.
pub mod http; // An HTTP/1.1 server with every byte and every pause in the test's hands.
#[cfg(target_os = "linux")]
pub mod keyring; // An entry of the kernel's keyring.
pub mod mounts; // File systems of a test's own, that fill up or become read-only.
pub mod postgres; // One throw-away cluster for all test processes, a database per test.
pub mod repo; // Small real git repositories, the same hashes on every machine.
mod require; // Which services must be there for a test run to count.
pub mod terminal; // A terminal to drive a program in.
