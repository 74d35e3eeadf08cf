//! `formwork auth`: who may ask a server, and for what.

use formwork_protocols::{CredentialId, OutcomeCode, Principal};
use formwork_services::operations::credentials::{
    Add, AddParams, Bootstrap, BootstrapParams, Given, List, ListParams, Listed, Revoke,
    RevokeParams, Rotate, RotateParams, Row,
};

use crate::{
    args::{Auth, Global},
    fault::Fault,
    settings::Need,
    terminal::{Format, Terminal, complain},
    view::visible,
};

pub(super) fn auth(global: &Global, terminal: &Terminal, args: Auth) -> Result<OutcomeCode, Fault> {
    let reads = matches!(args, Auth::List { .. });
    super::reading_if(reads, global, Need::Look, async |formwork, caller, _| {
        match args {
            Auth::Bootstrap { name } => {
                let to = name.as_deref().map(principal).transpose()?;
                let params = BootstrapParams { to };
                let given = formwork.call::<Bootstrap>(&caller, params).await?;
                told(terminal, &given)?;
            }
            Auth::Add { name, scopes, expires } => {
                let params = AddParams { to: principal(&name)?, scopes, expires_in: expires };
                told(terminal, &formwork.call::<Add>(&caller, params).await?)?;
            }
            Auth::List { all } => {
                let listed = formwork.call::<List>(&caller, ListParams { all }).await?;
                terminal.result(&listed, || table(&listed))?;
            }
            Auth::Rotate { id, overlap } => {
                let params = RotateParams { id, overlap };
                let given = formwork.call::<Rotate>(&caller, params).await?;
                told(terminal, &given)?;
                if let (Format::Text, Some(until)) = (terminal.format, given.credential.overlap) {
                    complain(&format!("the token before is taken until {until} as well\n"));
                }
            }
            Auth::Revoke { id } => {
                let revoked = formwork.call::<Revoke>(&caller, RevokeParams { id }).await?;
                terminal.result(&revoked, || {
                    let Row { id, principal, .. } = &revoked;
                    format!("revoked {id} of {}\n", visible(principal.as_str()))
                })?;
            }
        }
        Ok(OutcomeCode::Completed)
    })
}

/// Reads who acts: a person by their name alone, anybody else with what they are.
fn principal(name: &str) -> Result<Principal, Fault> {
    let text = if name.contains(':') { name.to_owned() } else { format!("user:{name}") };
    Principal::parse(text).map_err(|error| {
        Fault::usage(error.to_string())
            .hint("name a person, as in `ada`, or a program, as in `service:ci`")
    })
}

/// Prints a token, once: by itself on standard output, so that it can be piped to where it is kept.
fn told(terminal: &Terminal, given: &Given) -> Result<(), Fault> {
    terminal.result(given, || format!("{}\n", given.token))?;
    if terminal.format == Format::Text {
        let Row { id, principal, scopes, expires, .. } = &given.credential;
        let scopes: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
        let until = expires.map_or(String::new(), |at| format!(", until {at}"));
        let (who, scopes) = (visible(principal.as_str()), scopes.join(","));
        complain(&format!(
            "credential {id} of {who} for {scopes}{until}; its token is shown this once\n"
        ));
    }
    Ok(())
}

fn table(listed: &Listed) -> String {
    let mut text: String = listed.credentials.iter().map(line).collect();
    if listed.credentials.is_empty() {
        text.push_str("no credentials; `formwork auth bootstrap` gives the first\n");
    }
    if listed.over > 0 {
        text.push_str(&format!("{} more that are over: --all\n", listed.over));
    }
    text
}

fn line(row: &Row) -> String {
    let scopes: Vec<&str> = row.scopes.iter().map(|scope| scope.as_str()).collect();
    let stands = match (row.revoked, row.expires) {
        (Some(at), _) => format!("revoked {at}"),
        (None, Some(at)) if row.standing == "expired" => format!("expired {at}"),
        (None, Some(at)) => format!("until {at}"),
        (None, None) => row.standing.clone(),
    };
    let overlap = row.overlap.map_or(String::new(), |at| format!(", token before until {at}"));
    let (id, principal) = (row.id, super::cell(row.principal.as_str()));
    format!("{id}  {principal:<20} {:<15} {stands}{overlap}\n", scopes.join(","))
}

/// Reads which credential.
pub(crate) fn credential(text: &str) -> Result<CredentialId, String> {
    text.parse().map_err(|_| "expected a credential as `formwork auth list` names it".to_owned())
}
