//! What is said, by the rules of JSON-RPC 2.0: requests that are answered by their id, and notifications that are not.

use serde_json::{Map, Value, json};

/// The longest id of a request, in bytes: it is said again with the answer.
const LONGEST_ID: usize = 200;

/// Something that a client says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Message {
    Request {
        id: Value,
        method: String,
        params: Map<String, Value>,
    },
    Notification {
        method: String,
        params: Map<String, Value>,
    },
    /// An answer; nothing was asked.
    Answer,
}

/// Why something cannot be answered as it was asked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fault {
    pub(crate) code: i32,
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
}

impl Fault {
    fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// It is no JSON.
    pub(crate) fn parse() -> Self {
        Self::new(-32700, "the message is no JSON")
    }

    /// It is no message.
    pub(crate) fn request(message: impl Into<String>) -> Self {
        Self::new(-32600, message)
    }

    /// There is no such method.
    pub(crate) fn method(method: &str) -> Self {
        Self::new(-32601, format!("there is no method {:?}", short(method)))
    }

    /// A method is given something else than it takes.
    pub(crate) fn params(message: impl Into<String>) -> Self {
        Self::new(-32602, message)
    }

    /// What is said beside the message is something else.
    pub(crate) fn header(name: &str) -> Self {
        Self::new(-32020, format!("the header {name} is not what the message says"))
    }

    /// The client speaks a revision that is not known.
    pub(crate) fn revision(requested: &str, supported: &[&str]) -> Self {
        let data = json!({ "requested": short(requested), "supported": supported });
        Self { data: Some(data), ..Self::new(-32022, "the revision of the protocol is not known") }
    }

    /// Returns the message that tells of it.
    pub(crate) fn answer(self, id: Value) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let (Some(data), Some(fields)) = (self.data, error.as_object_mut()) {
            fields.insert("data".to_owned(), data);
        }
        json!({ "jsonrpc": "2.0", "id": id, "error": error })
    }
}

/// Returns the message that answers a request.
pub(crate) fn answer(id: Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// Returns as much of what somebody else has said as an error repeats.
pub(crate) fn short(text: &str) -> &str {
    formwork_protocols::text::head(text, 64)
}

/// Reads what a client says.
///
/// # Errors
/// The message that is to be answered.
pub(crate) fn parse(bytes: &[u8]) -> Result<Message, Value> {
    let read: Value =
        serde_json::from_slice(bytes).map_err(|_| Fault::parse().answer(Value::Null))?;
    let Value::Object(mut fields) = read else {
        // Several at once, as one revision had it, are none of the others'.
        return Err(Fault::request("a message is one object").answer(Value::Null));
    };
    let id = fields.remove("id");
    let known = id.as_ref().filter(|id| match id {
        Value::String(text) => text.len() <= LONGEST_ID,
        Value::Number(number) => number.is_i64() || number.is_u64(),
        _ => false,
    });
    let wrong = |told: &str| Fault::request(told).answer(known.cloned().unwrap_or(Value::Null));
    if fields.get("jsonrpc").is_none_or(|version| version != "2.0") {
        return Err(wrong("a message says that jsonrpc is \"2.0\""));
    }
    let method = match fields.remove("method") {
        Some(Value::String(method)) => method,
        None if fields.contains_key("result") || fields.contains_key("error") => {
            return Ok(Message::Answer);
        }
        _ => return Err(wrong("a message names a method")),
    };
    let params = match fields.remove("params") {
        Some(Value::Object(params)) => params,
        None => Map::new(),
        Some(_) => return Err(wrong("params are an object")),
    };
    match (&id, known) {
        (None, _) => Ok(Message::Notification { method, params }),
        (Some(_), Some(id)) => Ok(Message::Request { id: id.clone(), method, params }),
        (Some(_), None) => Err(wrong("an id is a short text or a whole number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_message_is_answered_by_its_id_where_it_has_one() {
        let told = |text: &str| {
            let answer = parse(text.as_bytes()).unwrap_err();
            (answer["id"].clone(), answer["error"]["code"].as_i64().unwrap())
        };

        assert_eq!(told("{"), (Value::Null, -32700));
        assert_eq!(told(&"[".repeat(100_000)), (Value::Null, -32700));
        assert_eq!(told("[]"), (Value::Null, -32600));
        assert_eq!(told(r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#), (json!(1), -32600));
        assert_eq!(told(r#"{"jsonrpc":"2.0","id":1}"#), (json!(1), -32600));
        assert_eq!(
            told(r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#),
            (json!(1), -32600)
        );
        assert_eq!(told(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#), (Value::Null, -32600));
        assert_eq!(told(r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#), (Value::Null, -32600));
        let book = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "x".repeat(201));
        assert_eq!(told(&book), (Value::Null, -32600));
    }

    #[test]
    fn an_answer_to_nothing_is_passed_over() {
        let answer = br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32700,"message":"x"}}"#;

        assert_eq!(parse(answer), Ok(Message::Answer));
    }
}
