//! What there is, as OpenAPI 3.1: made of the capabilities, so that none is left out.

use std::collections::{BTreeMap, BTreeSet};

use axum::response::Response;
use formwork_services::capability::{CAPABILITIES, Capability, Effect};
use serde_json::{Map, Value, json};

use crate::calls;

/// Where a schema stands that others name.
const COMPONENTS: &str = "#/components/schemas/";

/// Answers with the document.
pub(crate) async fn get() -> Response {
    // It is asked for seldom, and larger than what a server holds otherwise.
    calls::json(&document())
}

/// Returns the OpenAPI document of the HTTP interface.
pub fn document() -> Value {
    let mut schemas = Schemas::default();
    let mut paths = Map::new();
    for capability in CAPABILITIES {
        paths.insert(format!("/v1/{}", capability.name), path(capability, &mut schemas));
    }
    for (at, what) in
        [("/health", "Says that the server runs."), ("/ready", "Says whether it can do something.")]
    {
        paths.insert(
            at.to_owned(),
            json!({ "get": {
                "summary": what,
                "security": [],
                "responses": { "200": { "description": "It does." }, "503": problem("It does not.") },
            }}),
        );
    }
    let page = reference("events.list.output");
    paths.insert("/v1/events".to_owned(), events(&page, true));
    paths.insert("/v1/runs/{run}/events".to_owned(), events(&page, false));
    paths.insert(
        "/v1/openapi.json".to_owned(),
        json!({ "get": {
            "summary": "This document.",
            "responses": { "200": { "description": "It." }, "default": problem("Why not.") },
        }}),
    );
    let mut components = schemas.all;
    components.insert("problem".to_owned(), problem_schema());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Formwork",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Each capability is asked for by POST /v1/NAME, its parameters as a JSON object.",
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn path(capability: &Capability, schemas: &mut Schemas) -> Value {
    let name = capability.name;
    let params = schemas.take(&format!("{name}.params"), capability.params());
    let output = schemas.take(&format!("{name}.output"), capability.output());
    let is_asked_something = capability.params().get("required").is_some();
    json!({ "post": {
        "operationId": name,
        "tags": [name.split('.').next()],
        "summary": capability.doc,
        "x-formwork-scope": capability.scope,
        "x-formwork-effect": capability.effect,
        "x-formwork-idempotent": capability.effect == Effect::Read,
        "requestBody": {
            "required": is_asked_something,
            "content": { "application/json": { "schema": params } },
        },
        "responses": {
            "200": {
                "description": "What it returns.",
                "content": { "application/json": { "schema": output } },
            },
            "default": problem("Why it was not done."),
        },
    }})
}

fn events(page: &Value, has_run: bool) -> Value {
    let query = |name: &str, what: &str, schema: Value| json!({ "name": name, "in": "query", "description": what, "schema": schema });
    let mut parameters = vec![
        query(
            "after",
            "Those after this position; `now` for what happens from now on.",
            json!({ "type": "string" }),
        ),
        query(
            "kind",
            "Of kinds that begin so; several may be given.",
            json!({ "type": "array", "items": { "type": "string" } }),
        ),
        query("task", "Of this task only.", json!({ "type": "string", "format": "uuid" })),
        query(
            "limit",
            "How many a page has at the most; of a document only.",
            json!({ "type": "integer", "minimum": 1 }),
        ),
        json!({ "name": "Last-Event-ID", "in": "header", "description": "What was seen last; counts before `after`.", "schema": { "type": "string" } }),
    ];
    let run = json!({ "type": "string", "format": "uuid" });
    parameters.push(match has_run {
        true => query("run", "Of this run only.", run),
        false => json!({ "name": "run", "in": "path", "required": true, "schema": run }),
    });
    json!({ "get": {
        "summary": "The log from a position on: a stream that goes on, or a page of it where JSON is accepted.",
        "x-formwork-scope": "read",
        "parameters": parameters,
        "responses": {
            "200": {
                "description": "A stream of events, each with its position as id; or a page.",
                "content": {
                    "text/event-stream": { "schema": { "type": "string" } },
                    "application/json": { "schema": page },
                },
            },
            "default": problem("Why not."),
        },
    }})
}

fn problem(what: &str) -> Value {
    json!({
        "description": what,
        "content": { "application/problem+json": { "schema": reference("problem") } },
    })
}

fn problem_schema() -> Value {
    json!({
        "type": "object",
        "required": ["type", "title", "status", "detail", "errors"],
        "properties": {
            "type": { "type": "string" },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string", "description": "What is wrong." },
            "errors": { "type": "array", "items": { "type": "string" }, "description": "Each fault." },
            "code": { "type": "string", "description": "As what the program would end." },
            "hint": { "type": ["string", "null"], "description": "What to do." },
            "diagnostics": { "type": "array", "description": "The faults of documents, each with its place." },
        },
    })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("{COMPONENTS}{name}") })
}

/// All schemas, each under a name of its own.
#[derive(Default)]
struct Schemas {
    all: Map<String, Value>,
    /// What each name was taken for, as it was written.
    taken: BTreeMap<String, Value>,
}

impl Schemas {
    /// Takes a schema and all that it names, and returns what names it.
    ///
    /// Two types may have one name. What is named so already and is another is put under a name of its own, and so is whatever
    /// names it.
    fn take(&mut self, name: &str, mut schema: Value) -> Value {
        let named = schema.as_object_mut().and_then(|schema| {
            schema.remove("$schema");
            schema.remove("$defs")
        });
        let named: BTreeMap<String, Value> = match named {
            Some(Value::Object(named)) => named.into_iter().collect(),
            _ => BTreeMap::new(),
        };
        let mut own: BTreeSet<String> = named
            .iter()
            .filter(|(name, schema)| self.taken.get(*name).is_some_and(|taken| taken != *schema))
            .map(|(name, _)| name.clone())
            .collect();
        while let Some(more) = named
            .iter()
            .find(|(name, schema)| {
                !own.contains(*name) && names(schema).iter().any(|it| own.contains(*it))
            })
            .map(|(name, _)| name.clone())
        {
            own.insert(more);
        }
        let called = |of: &str| match own.contains(of) {
            true => format!("{name}.{of}"),
            false => of.to_owned(),
        };
        for (of, schema) in &named {
            let mut written = schema.clone();
            rename(&mut written, &called);
            self.all.insert(called(of), written);
            if !own.contains(of) {
                self.taken.insert(of.clone(), schema.clone());
            }
        }
        rename(&mut schema, &called);
        self.all.insert(name.to_owned(), schema);
        reference(name)
    }
}

/// Where a schema names another of its own document.
const DEFS: &str = "#/$defs/";

/// Lists what a schema names.
fn names(schema: &Value) -> Vec<&str> {
    match schema {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(key, value)| match value.as_str().filter(|_| key == "$ref") {
                Some(to) => to.strip_prefix(DEFS).into_iter().collect(),
                None => names(value),
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(names).collect(),
        _ => Vec::new(),
    }
}

/// Has a schema name what it names where that is.
fn rename(schema: &mut Value, called: &impl Fn(&str) -> String) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                let to =
                    value.as_str().filter(|_| key == "$ref").and_then(|it| it.strip_prefix(DEFS));
                match to.map(called) {
                    Some(name) => *value = Value::String(format!("{COMPONENTS}{name}")),
                    None => rename(value, called),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, called)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaviour_37_every_capability_is_a_path_with_both_of_its_schemas() {
        let document = document();

        for capability in CAPABILITIES {
            let post = &document["paths"][format!("/v1/{}", capability.name)]["post"];
            assert_eq!(post["operationId"], capability.name);
            assert_eq!(post["x-formwork-scope"], json!(capability.scope), "{}", capability.name);
            for half in ["params", "output"] {
                let name = format!("{}.{half}", capability.name);
                assert!(document["components"]["schemas"][&name].is_object(), "{name}");
            }
        }
    }

    #[test]
    fn whatever_a_schema_names_is_there() {
        let document = document();
        let text = document.to_string();

        assert!(!text.contains(DEFS) && !text.contains("\"$defs\""), "a part was left behind");
        let mut found = 0;
        for part in text.split(&format!("\"{COMPONENTS}")).skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
            found += 1;
        }
        assert!(found > 100, "{found}");
    }

    #[test]
    fn two_types_of_one_name_stay_two() {
        let mut schemas = Schemas::default();
        let with = |row: Value| {
            json!({
                "properties": { "rows": { "$ref": "#/$defs/List" } },
                "$defs": { "List": { "items": { "$ref": "#/$defs/Row" } }, "Row": row },
            })
        };

        schemas.take("one", with(json!({ "type": "string" })));
        schemas.take("same", with(json!({ "type": "string" })));
        schemas.take("other", with(json!({ "type": "integer" })));

        let all = Value::Object(schemas.all);
        let names: Vec<_> = all.as_object().unwrap().keys().cloned().collect();
        assert_eq!(names, ["List", "Row", "one", "other", "other.List", "other.Row", "same"]);
        assert_eq!(all["other.List"]["items"], reference("other.Row"));
        assert_eq!(all["List"]["items"], reference("Row"));
        assert_eq!(all["same"]["properties"]["rows"], reference("List"));
    }
}
