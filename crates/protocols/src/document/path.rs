//! The path of a value within its document.

use std::fmt::{self, Display, Write as _};

use toml::de::DeValue;

/// One step from a table or an array into it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Segment {
    /// The entry of a table.
    Key(String),
    /// The item of an array, counted from zero.
    Index(usize),
}

/// The steps from a document's root to a value; displayed as `tasks[1].agent`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyPath(Vec<Segment>);

impl KeyPath {
    /// Returns the steps, outermost first.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// Reports whether this is the path of the whole document.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push_key(&mut self, key: &str) {
        self.0.push(Segment::Key(key.to_owned()));
    }

    pub(crate) fn push_index(&mut self, index: usize) {
        self.0.push(Segment::Index(index));
    }

    pub(crate) fn pop(&mut self) {
        self.0.pop();
    }
}

impl FromIterator<Segment> for KeyPath {
    fn from_iter<I: IntoIterator<Item = Segment>>(segments: I) -> Self {
        Self(segments.into_iter().collect())
    }
}

impl Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) => {
                    if position > 0 {
                        f.write_char('.')?;
                    }
                    let bare = !key.is_empty()
                        && key
                            .bytes()
                            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
                    if bare { f.write_str(key)? } else { write!(f, "{key:?}")? }
                }
            }
        }
        Ok(())
    }
}

/// Writes `segments` as a JSON pointer: `["tasks", "0"]` becomes `/tasks/0`, with `~` and `/` escaped.
pub fn pointer<I>(segments: I) -> String
where
    I: IntoIterator,
    I::Item: Display,
{
    segments.into_iter().fold(String::new(), |mut pointer, segment| {
        pointer.push('/');
        pointer.push_str(&segment.to_string().replace('~', "~0").replace('/', "~1"));
        pointer
    })
}

/// Splits a JSON pointer into its unescaped segments; `""` and `"/"` name the root.
pub(crate) fn split_pointer(pointer: &str) -> impl Iterator<Item = String> + '_ {
    let steps = pointer.strip_prefix('/').unwrap_or(pointer);
    steps
        .split('/')
        .filter(move |_| !steps.is_empty())
        .map(|step| step.replace("~1", "/").replace("~0", "~"))
}

/// Names the type of `value` as a reader of TOML would.
pub(crate) fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date-time",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}
