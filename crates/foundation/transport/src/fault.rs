//! What a server's refusal means for the caller, by its status and its words.

use formwork_protocols::{ProviderFault, text};
use serde_json::Value;

/// The most of a server's own words that stands in a message, in bytes.
const MESSAGE: usize = 300;

/// What went wrong, before it is known whose call it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) fault: ProviderFault,
    pub(crate) message: String,
    pub(crate) code: Option<String>,
    pub(crate) body: Option<String>,
}

impl Fault {
    pub(crate) fn new(fault: ProviderFault, message: impl Into<String>) -> Self {
        Self { fault, message: message.into(), code: None, body: None }
    }

    pub(crate) fn with_body(mut self, body: &str) -> Self {
        self.body = Some(body.to_owned());
        self
    }

    /// Reads a refusal: an answer with an error status, or an error inside a good one (`status` absent).
    pub(crate) fn of_answer(status: Option<u16>, body: &str) -> Self {
        let told = Told::read(body);
        let fault = told.fault(status);
        let message = match &told.message {
            Some(message) => sentence(message),
            None if is_html(body) => match title(body) {
                Some(title) => format!("the server answered with an HTML page titled {title:?}"),
                None => "the server answered with an HTML page".to_owned(),
            },
            None if body.trim().is_empty() => "the server gave no reason".to_owned(),
            None => format!("the server answered {:?}", text::head(body.trim(), MESSAGE)),
        };
        Self { fault, message, code: told.code, body: Some(body.to_owned()) }
    }
}

/// The server's words, as far as they can be found in its answer.
#[derive(Debug, Default)]
struct Told {
    message: Option<String>,
    code: Option<String>,
    /// The code, the type and the message in lower case, to be searched.
    words: String,
}

impl Told {
    fn read(body: &str) -> Self {
        // A refusal may come as an event although no stream was to be had.
        let json = body.trim_start().strip_prefix("data:").unwrap_or(body);
        let Some(Ok(value)) = serde_json::Deserializer::from_str(json).into_iter::<Value>().next()
        else {
            return Self { words: text::head(body, 4096).to_lowercase(), ..Self::default() };
        };
        let value = value.get(0).unwrap_or(&value);
        let error = value.get("error").unwrap_or(value);
        let text = |value: Option<&Value>| match value {
            Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
            Some(Value::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        let message = text(Some(error).filter(|error| error.is_string()))
            .or_else(|| text(error.get("message")))
            .or_else(|| text(error.get("detail")))
            .or_else(|| error.get("detail").map(Value::to_string));
        // A code that only repeats the HTTP status says less than the type.
        let code = text(error.get("code"));
        let kind = text(error.get("type")).or_else(|| text(error.get("status")));
        let told = match (&code, &kind) {
            (Some(code), Some(kind)) if code.parse::<u16>().is_ok() => Some(kind.clone()),
            (None, _) => kind.clone(),
            _ => code.clone(),
        };
        let words = [&code, &kind, &message].map(|part| part.clone().unwrap_or_default());
        Self { message, code: told, words: words.join(" ").to_lowercase() }
    }

    fn says(&self, any: &[&str]) -> bool {
        any.iter().any(|words| self.words.contains(words))
    }

    fn fault(&self, status: Option<u16>) -> ProviderFault {
        // Inside a good answer the code often is the status that could not be sent any more.
        let status = status.or_else(|| self.words.split(' ').next()?.parse().ok());
        if status != Some(429) && self.says(CONTEXT) {
            return ProviderFault::ContextOverflow;
        }
        if status == Some(402) || self.says(QUOTA) {
            return ProviderFault::Quota;
        }
        match status {
            Some(401 | 403) => ProviderFault::Auth,
            // Google refuses a wrong key as a wrong request.
            Some(400) if self.says(&["api key not valid"]) => ProviderFault::Auth,
            Some(408 | 504 | 524) => ProviderFault::Timeout,
            Some(429) => ProviderFault::Throttled,
            Some(498 | 503 | 529) => ProviderFault::Overloaded,
            Some(400..=499) if self.says(&["model"]) && self.says(NO_SUCH) => {
                ProviderFault::ModelNotFound
            }
            Some(409 | 425) => ProviderFault::Server,
            Some(300..=499) => ProviderFault::Invalid,
            Some(500..) if self.says(&["overloaded"]) => ProviderFault::Overloaded,
            Some(500..) => ProviderFault::Server,
            _ => self.fault_by_words(),
        }
    }

    fn fault_by_words(&self) -> ProviderFault {
        for (words, fault) in [
            (&["overloaded", "unavailable"][..], ProviderFault::Overloaded),
            (&["rate_limit", "rate limit", "resource_exhausted"], ProviderFault::Throttled),
            (&["authentication", "api key", "permission"], ProviderFault::Auth),
            (&["not_found_error", "model_not_found"], ProviderFault::ModelNotFound),
            (&["invalid_request", "invalid_argument"], ProviderFault::Invalid),
            (&["timeout", "timed out", "deadline_exceeded"], ProviderFault::Timeout),
        ] {
            if self.says(words) {
                return fault;
            }
        }
        ProviderFault::Server
    }
}

/// How servers say that the conversation is longer than the window.
const CONTEXT: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "context window",
    "available context size",
    "context length",
    "prompt is too long",
    "exceed context limit",
    "input is too long",
    "exceeds the maximum number of tokens",
];

/// How servers say that money has run out; a word like "quota" alone is used for mere throttling too.
const QUOTA: &[&str] = &[
    "insufficient_quota",
    "billing_hard_limit",
    "billing_not_active",
    "credit balance",
    "insufficient credit",
    "insufficient balance",
];

const NO_SUCH: &[&str] = &[
    "not found",
    "not_found",
    "does not exist",
    "no such",
    "unknown",
    "invalid model",
    "not exist",
];

/// Tells whether a body is a page for people.
pub(crate) fn is_html(body: &str) -> bool {
    let start = text::head(body.trim_start(), 64).to_lowercase();
    start.starts_with("<!doctype html") || start.starts_with("<html")
}

fn title(body: &str) -> Option<String> {
    let lower = body.to_ascii_lowercase();
    let start = lower.find("<title>")? + "<title>".len();
    let length = lower.get(start..)?.find("</title>")?;
    Some(text::head(body.get(start..start + length)?.trim(), MESSAGE).to_owned())
}

/// Makes one sentence without a full stop of a server's words.
fn sentence(message: &str) -> String {
    let line = message.trim().lines().next().unwrap_or_default().trim_end_matches('.');
    text::head(line, MESSAGE).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_by_its_status_and_its_words() {
        use ProviderFault::*;
        for (status, body, fault, message, code) in [
            (
                429,
                r#"{"error":{"message":"Slow down.","type":"rate_limit_error"}}"#,
                Throttled,
                "Slow down",
                Some("rate_limit_error"),
            ),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#,
                Quota,
                "You exceeded your current quota",
                Some("insufficient_quota"),
            ),
            (
                402,
                r#"{"error":{"message":"Insufficient credits","code":402}}"#,
                Quota,
                "Insufficient credits",
                Some("402"),
            ),
            (
                401,
                r#"{"error":{"message":"Invalid API Key","type":"authentication_error","code":401}}"#,
                Auth,
                "Invalid API Key",
                Some("authentication_error"),
            ),
            (403, "", Auth, "the server gave no reason", None),
            (
                404,
                r#"{"error":"model \"x\" not found, try pulling it first"}"#,
                ModelNotFound,
                "model \"x\" not found, try pulling it first",
                None,
            ),
            (404, r#"{"detail":"Not Found"}"#, Invalid, "Not Found", None),
            (
                400,
                r#"{"error":{"message":"Invalid model name passed in model=x","code":"400"}}"#,
                ModelNotFound,
                "Invalid model name passed in model=x",
                Some("400"),
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"request (40010 tokens) exceeds the available context size (8192 tokens), try increasing it","type":"exceed_context_size_error"}}"#,
                ContextOverflow,
                "request (40010 tokens) exceeds the available context size (8192 tokens), try increasing it",
                Some("exceed_context_size_error"),
            ),
            (
                422,
                r#"{"detail":[{"loc":["body"],"msg":"field required"}]}"#,
                Invalid,
                "[{\"loc\":[\"body\"],\"msg\":\"field required\"}]",
                None,
            ),
            (
                500,
                "Internal Server Error",
                Server,
                "the server answered \"Internal Server Error\"",
                None,
            ),
            (
                502,
                "<!DOCTYPE html><html><head><title>Bad gateway</title></head></html>",
                Server,
                "the server answered with an HTML page titled \"Bad gateway\"",
                None,
            ),
            (503, "<html></html>", Overloaded, "the server answered with an HTML page", None),
            (504, "", Timeout, "the server gave no reason", None),
            (
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                Overloaded,
                "Overloaded",
                Some("overloaded_error"),
            ),
            (
                500,
                "data: {\"error\": {\"message\": \"Error processing stream start\", \"code\": \"500\"}}\n\ndata: [DONE]\n\n",
                Server,
                "Error processing stream start",
                Some("500"),
            ),
            (
                429,
                r#"[{"error":{"code":429,"message":"Quota exceeded","status":"RESOURCE_EXHAUSTED"}}]"#,
                Throttled,
                "Quota exceeded",
                Some("RESOURCE_EXHAUSTED"),
            ),
            (307, "", Invalid, "the server gave no reason", None),
        ] {
            let found = Fault::of_answer(Some(status), body);

            assert_eq!(
                (found.fault, found.message.as_str(), found.code.as_deref()),
                (fault, message, code),
                "{status} {body}"
            );
        }
    }

    #[test]
    fn an_error_inside_a_good_answer_is_told_by_its_words() {
        use ProviderFault::*;
        for (body, fault) in [
            (r#"{"error":{"message":"boom"}}"#, Server),
            (r#"{"error":{"message":"boom","code":429}}"#, Throttled),
            (r#"{"error":{"message":"Overloaded","type":"overloaded_error"}}"#, Overloaded),
            (
                r#"{"error":{"message":"x","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
                ContextOverflow,
            ),
            (r#"{"object":"error","message":"bad","code":400}"#, Invalid),
        ] {
            assert_eq!(Fault::of_answer(None, body).fault, fault, "{body}");
        }
    }
}
