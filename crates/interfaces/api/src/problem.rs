//! How a request fails: `application/problem+json` with the words that the command line has.

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use formwork_services::{Class, Error};
use serde_json::{Value, json};

/// Why a request was not answered as it was asked, as RFC 9457 writes it: `title` and `status`, `detail` with what is wrong, `errors`
/// with each fault, `code` as the program would end, `hint` with what to do, and `diagnostics` with places of documents.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    status: StatusCode,
    errors: Vec<String>,
    code: Option<Value>,
    hint: Option<String>,
    diagnostics: Option<Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// Returns a problem of a request itself.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            errors: vec![detail.into()],
            code: None,
            hint: None,
            diagnostics: None,
            headers: Vec::new(),
        }
    }

    /// Adds what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a header to the answer.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Says when to ask again.
    #[must_use]
    pub(crate) fn again_in(self, seconds: u64) -> Self {
        self.header(header::RETRY_AFTER, HeaderValue::from(seconds))
    }

    /// Returns the status.
    pub const fn status(&self) -> StatusCode {
        self.status
    }
}

/// Returns the status of an error.
const fn status(class: Class) -> StatusCode {
    match class {
        Class::Unfit => StatusCode::UNPROCESSABLE_ENTITY,
        Class::Missing => StatusCode::NOT_FOUND,
        Class::Denied => StatusCode::FORBIDDEN,
        Class::Conflict => StatusCode::CONFLICT,
        Class::Away => StatusCode::SERVICE_UNAVAILABLE,
        Class::Failed => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let mut problem = Self {
            status: status(error.class()),
            errors: error.told(),
            code: Some(json!(error.code())),
            hint: error.hint(),
            diagnostics: None,
            headers: Vec::new(),
        };
        if let Error::Documents(faults) = &error {
            problem.diagnostics = Some(json!(faults));
        }
        match problem.status {
            StatusCode::SERVICE_UNAVAILABLE => problem.again_in(5),
            _ => problem,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut document = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or("Problem"),
            "status": self.status.as_u16(),
            "detail": self.errors.join("\n"),
            "errors": self.errors,
            "hint": self.hint,
        });
        if let Some(code) = self.code {
            document["code"] = code;
        }
        if let Some(diagnostics) = self.diagnostics {
            document["diagnostics"] = diagnostics;
        }
        let mut response = Response::new(Body::from(document.to_string()));
        *response.status_mut() = self.status;
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        for (name, value) in self.headers {
            response.headers_mut().insert(name, value);
        }
        response
    }
}
