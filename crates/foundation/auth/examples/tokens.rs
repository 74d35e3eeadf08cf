//! A token alone: what is handed out, what is kept of it, and what a book of credentials says when it comes back.

#![expect(clippy::print_stdout, reason = "an example shows what it is told")]

use formwork_auth::{Book, Token};
use formwork_protocols::{
    BlobHash, Clock as _, CredentialId, Event, EventBody, Position, Principal, RunId, Scope, Span,
    SystemClock, SystemRng,
    event::{CredentialIssued, CredentialOrigin, CredentialRevoked},
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let now = SystemClock.now();
    let id = CredentialId::generate(&SystemClock, &SystemRng);
    let token = Token::generate(id, &SystemRng);
    let ada = Principal::parse("user:ada")?;
    let mut book = Book::default();
    let mut record = |seq: u64, body: EventBody| {
        book.take(&Event {
            position: Position(seq),
            run: RunId::of_credentials(),
            seq,
            task: None,
            principal: ada.clone(),
            at: now,
            body,
            idempotency_key: None,
            hash: BlobHash::of(b""),
        });
        // The text came in by a header, from whoever has it.
        let read = Token::parse(token.expose());
        let read = read.as_ref().map(|token| book.admit(token, now.after(Span::from_secs(60))));
        match read {
            Some(Ok(credential)) => println!("it lets {} in", credential.principal),
            Some(Err(refusal)) => println!("it lets nobody in: {refusal}"),
            None => println!("it is no token"),
        }
    };

    record(
        1,
        EventBody::CredentialIssued(CredentialIssued {
            credential: id,
            to: ada.clone(),
            scopes: vec![Scope::Read],
            hash: token.hash(),
            origin: CredentialOrigin::Added,
            expires: Some(now.after(Span::from_secs(3_600))),
        }),
    );
    record(2, EventBody::CredentialRevoked(CredentialRevoked { credential: id }));
    Ok(())
}
