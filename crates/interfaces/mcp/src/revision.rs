//! Which revision of the protocol a client speaks. Up to one it greets once, and from the next on it says with each request.

use serde_json::{Map, Value};

use crate::message::Fault;

/// The revisions that are spoken, the oldest first.
///
/// Source: the specification's own list of versions, 2026-07-28.
pub(crate) const ALL: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", NEWEST];

/// The first one without a greeting.
const NEWEST: &str = "2026-07-28";

/// The last one with a greeting.
const LAST_GREETED: &str = "2025-11-25";

/// Where a request says it.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// Where a request says what its client can do.
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// How requests and their answers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// As after a greeting.
    Greeted,
    /// Each request by itself.
    Alone,
}

/// Returns the revision that a greeting is answered with.
pub(crate) fn greeted(wanted: &str) -> &'static str {
    let known = ALL.into_iter().find(|known| *known == wanted && *known != NEWEST);
    known.unwrap_or(LAST_GREETED)
}

/// Tells how a request is written.
///
/// # Errors
/// [`Fault`] where it names a revision that is not known, or lacks what its revision wants.
pub(crate) fn of(method: &str, params: &Map<String, Value>) -> Result<Manner, Fault> {
    let meta = params.get("_meta");
    let said = meta.and_then(|meta| meta.get(VERSION)).and_then(Value::as_str);
    if let Some(said) = said
        && !ALL.contains(&said)
    {
        return Err(Fault::revision(said, &ALL));
    }
    let is_alone = method == "server/discover" || said == Some(NEWEST);
    if !is_alone {
        return Ok(Manner::Greeted);
    }
    let can = meta.and_then(|meta| meta.get(CAPABILITIES)).is_some_and(Value::is_object);
    if said.is_none() || !can {
        let told = format!("_meta of a request says {VERSION} and {CAPABILITIES}");
        return Err(Fault::params(told));
    }
    Ok(Manner::Alone)
}

/// Checks what a request of HTTP says beside its body.
///
/// # Errors
/// [`Fault`] where that is not known, or not what the body says.
pub(crate) fn beside(
    headers: &http::HeaderMap,
    method: &str,
    params: &Map<String, Value>,
) -> Result<(), Fault> {
    let header = |name: &str| headers.get(name).map(|said| said.to_str().unwrap_or_default());
    let version = header("mcp-protocol-version");
    if let Some(version) = version
        && !ALL.contains(&version)
    {
        return Err(Fault::revision(version, &ALL));
    }
    let meta = params.get("_meta").and_then(|meta| meta.get(VERSION)).and_then(Value::as_str);
    let is_alone = meta == Some(NEWEST) || version == Some(NEWEST);
    if is_alone && version != meta {
        return Err(Fault::header("mcp-protocol-version"));
    }
    // Whoever stands between client and server may have judged by these.
    let name = params.get("name").and_then(Value::as_str);
    let is_called = method == "tools/call";
    for (header_name, wanted) in
        [("mcp-method", Some(method)), ("mcp-name", name.filter(|_| is_called))]
    {
        let said = header(header_name);
        if (said.is_some() || is_alone) && said != wanted {
            return Err(Fault::header(header_name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_greeting_is_answered_with_its_own_revision_or_the_last_that_greets() {
        assert_eq!(greeted("2024-11-05"), "2024-11-05");
        assert_eq!(greeted("2025-11-25"), "2025-11-25");
        assert_eq!((greeted("2026-07-28"), greeted("1999-01-01")), (LAST_GREETED, LAST_GREETED));
    }

    #[test]
    fn a_request_by_itself_says_its_revision_and_what_is_beside_it_says_the_same() {
        let meta = json!({ VERSION: NEWEST, CAPABILITIES: {} });
        let params = json!({ "_meta": meta, "name": "runs_list" });
        let params = params.as_object().unwrap();
        let beside = |said: &[(&'static str, &'static str)]| {
            let mut headers = http::HeaderMap::new();
            for (name, value) in said {
                headers.insert(*name, http::HeaderValue::from_static(value));
            }
            beside(&headers, "tools/call", params).map_err(|fault| fault.code)
        };
        let version = ("mcp-protocol-version", NEWEST);
        let method = ("mcp-method", "tools/call");

        assert_eq!(of("tools/call", params), Ok(Manner::Alone));
        assert_eq!(of("tools/call", &Map::new()), Ok(Manner::Greeted));
        assert_eq!(of("server/discover", &Map::new()).unwrap_err().code, -32602);
        let other = json!({ "_meta": { VERSION: "2030-01-01" } });
        assert_eq!(of("ping", other.as_object().unwrap()).unwrap_err().code, -32022);
        assert_eq!(beside(&[version, method, ("mcp-name", "runs_list")]), Ok(()));
        assert_eq!(beside(&[version, method, ("mcp-name", "runs_abort")]), Err(-32020));
        assert_eq!(beside(&[version, ("mcp-name", "runs_list")]), Err(-32020));
        assert_eq!(beside(&[method, ("mcp-name", "runs_list")]), Err(-32020));
        assert_eq!(beside(&[("mcp-protocol-version", "2030-01-01")]), Err(-32022));
    }
}
