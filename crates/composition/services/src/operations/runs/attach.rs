//! Files that are shown with what is asked: texts within the prompt, images and documents beside it.

use std::collections::BTreeSet;

use formwork_protocols::{AgentName, Attachment, Body, model::TAKES_NO_IMAGES};
use formwork_scheduler::workflow::Plan;

use crate::{
    Error, Formwork,
    models::Models,
    reading,
    reading::{SHOWN, Shown},
};

/// How many images and documents are shown with one thing asked, and how many bytes they may have together: what the
/// strictest provider takes of a request, with room for what is said after it.
const MOST: (usize, u64) = (20, 14 * 1024 * 1024);

/// Reads the files that are to be shown: the text of each text is added to the prompt, all others are returned. What a person has
/// to know of it is added to `notes`: which texts are shown in part.
///
/// # Errors
/// [`Error::Attached`] names the first that cannot be shown, and why.
pub(super) fn read(
    formwork: &Formwork,
    prompt: &mut String,
    paths: &[String],
    notes: &mut Vec<String>,
) -> Result<Vec<Attachment>, Error> {
    let mut attached = Vec::new();
    let (most, most_bytes) = MOST;
    let mut bytes = 0_u64;
    let mut seen = BTreeSet::new();
    for path in paths.iter().filter(|path| seen.insert(path.as_str())) {
        let refused = |reason| Error::Attached { path: path.clone(), reason };
        match reading::attached(&formwork.inner.root, path).map_err(refused)? {
            Shown::Text { text, cut } => {
                prompt.push_str(&text);
                notes.extend(cut.map(|all| {
                    format!("{path} is shown in part: the first {SHOWN} of its {all} bytes")
                }));
            }
            Shown::Attached(attachment) => {
                bytes = bytes.saturating_add(attachment.bytes);
                if attached.len() >= most {
                    let told = format!("at most {most} images and documents are shown at once");
                    return Err(refused(told));
                }
                if bytes > most_bytes {
                    let told = format!(
                        "with it there would be {bytes} bytes of images and documents, and at most {most_bytes} are shown at once"
                    );
                    return Err(refused(told));
                }
                attached.push(attachment);
            }
        }
    }
    Ok(attached)
}

/// Holds what is to be shown against what the model of the one task takes. Returns what a person has to know of it: which
/// images the model is told of in words alone, because it takes none.
///
/// # Errors
/// [`Error::Attached`] names the first that its provider would refuse, and why. Nothing was sent.
pub(super) async fn held(
    plan: &Plan,
    models: &Models,
    model_of: impl Fn(&AgentName) -> Option<formwork_protocols::ModelRef>,
) -> Result<Vec<String>, Error> {
    let attached = &plan.root().attached;
    let Body::Agent { agent, .. } = &plan.root().body else { return Ok(Vec::new()) };
    let Some(name) = model_of(agent).filter(|_| !attached.is_empty()) else {
        return Ok(Vec::new());
    };
    let model = models.model(&name)?;
    let sees = match attached.iter().any(Attachment::is_image) {
        true => model.takes_images().await.unwrap_or(true),
        false => true,
    };
    let mut notes = Vec::new();
    for attachment in attached {
        let path = attachment.name.clone();
        if attachment.is_image() && !sees {
            notes.push(format!(
                "{path} is not shown to {name}, which is told of it in words: {TAKES_NO_IMAGES}"
            ));
        } else if let Some(reason) = model.provider.refuses(attachment) {
            return Err(Error::Attached { path, reason });
        }
    }
    Ok(notes)
}
