//! A conversation that cannot come apart: groups in, messages out, and back again.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use formwork_context::{Answered, Group, History, OpenTurn};
use formwork_protocols::{Message, Part, Role, ToolCall, message::Arguments};

fn main() {
    let mut history = History::new("You answer briefly.");
    history.say(Message::text(Role::User, "How many files are in src?"));

    let call = ToolCall {
        id: "call_1".to_owned(),
        name: "list_dir".to_owned(),
        arguments: Arguments::Json(serde_json::json!({ "path": "src" })),
    };
    let asks = Message { role: Role::Assistant, parts: vec![Part::ToolCall(call)] };

    // The process dies here: the log ends with a call that nobody has answered.
    let messages: Vec<Message> = history.messages().chain([asks]).collect();
    let (mut history, open) = History::fold(messages).expect("the messages are a conversation");

    // The turn is no part of the history until its call is answered.
    let mut open: OpenTurn = open.expect("the last answer has an open call");
    open.answer(0, Answered::ok("lib.rs"));
    history.push(open.close().expect("its only call is answered"));

    for group in history.groups() {
        match group {
            Group::User(message) => println!("user: {}", message.to_text()),
            Group::Turn(turn) => {
                for (call, result) in turn.pairs() {
                    println!("model: {} -> {}", call.name, result.content);
                }
            }
        }
    }
}
