//! What a model is shown: conversations that stay whole and within the window, instructions, skills.
//!
//! Start at [`History`]: a conversation as groups, so that no call is without its result and no result
//! without its call, whatever is taken out of it. A [`Meter`] tells how many tokens a request has, by what
//! the provider counted before; a [`Room`] says how many there is room for. Where that is not enough, the
//! steps are, in this order: [`superseded`] leaves out what a later result says again, [`spilled`] shows
//! the beginning and the end of what is long, [`oldest`] finds the groups that a summary can stand for,
//! and [`brief`] writes down what a new conversation has to know.
//!
//! All of it is pure: the same history gives the same edits, and [`History::apply`] does them again, so
//! that a log with the edits in it gives the same conversation. What is protected is never touched: the
//! system message, the first group, the task and the last groups.
//!
//! What a repository tells is material with a label: [`instruction`] reads an instruction file with what it includes,
//! [`Skill`] lists a text that is loaded when it is needed, and [`visible`] shows what would be hidden in either. What
//! tools and files hold is shown as [`outside`] writes it: it can pass for no person, no reminder and no summary.
//!
//! This crate asks no model, reads no file but through [`Files`], and knows no store.
//!
//! ```
//! use formwork_context::{Meter, Room};
//!
//! // An 8k window with room for an answer of at most a quarter of it.
//! let room = Room::of(8_192, 8_192);
//! assert_eq!(room.most, 6_016);
//!
//! // What the provider counted is believed, and only the rest estimated.
//! let mut meter = Meter::default();
//! meter.learn(1_000, 500);
//! assert_eq!(meter.likely(1_400), 767);
//! ```

mod compact; // What can be left out, and what has to stay.
mod count; // How many tokens a request has.
mod history; // What was said, well-formed by construction.
mod instructions; // What a repository asks of agents.
mod outside; // What comes from outside, so that it passes for nothing else.
mod room; // How many tokens there is room for.
mod skills; // Texts that are read when one is needed.
mod transcript; // A conversation in words, for those who sum it up.
mod visible; // Characters that nobody sees.

pub use {
    compact::{
        Fitting, Look, Protected, Step, Stretch, brief, digest, oldest, pictures, spilled, summary,
        superseded,
    },
    count::{Meter, message_tokens, tokens_of, tool_tokens},
    history::{Answered, Group, History, HistoryError, OpenTurn, Turn},
    instructions::{FILE_BYTES, Files, Instruction, folders, instruction},
    outside::{indented, outside},
    room::Room,
    skills::{MAX_SKILLS, Skill, listed, skill},
    transcript::{SUMMARISE, transcript},
    visible::visible,
};
