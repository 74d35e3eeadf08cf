//! Asking the person at the terminal about a call that the rules leave open.
//!
//! An [`Asker`] stands where the run asks; a [`Desk`] stands where the terminal is. Between them goes one
//! question at a time: a second one waits until the first is answered.

mod words; // What is shown, and how an answer is read.

use std::{
    io::{self, BufRead as _, IsTerminal as _},
    sync::{Arc, mpsc as threads},
};

use async_trait::async_trait;
use formwork_protocols::{Answer, Approval, ApprovalRequest, Approver, Cancel, Principal};
use tokio::sync::{mpsc, oneshot};

use crate::{
    args::Global,
    terminal::{Format, Terminal},
};

pub(crate) use words::{Reading, listed, question, read, told, whole};

/// How many questions wait for the terminal; more wait with whoever asks.
const WAITING: usize = 1;

/// A question that is open.
pub(crate) struct Open {
    /// What is asked.
    pub request: ApprovalRequest,
    answer: oneshot::Sender<Approval>,
}

impl Open {
    /// Answers it. Whoever asked may be gone.
    pub(crate) fn answer(self, approval: Approval) {
        let _ = self.answer.send(approval);
    }

    /// Waits until nobody wants the answer any more.
    pub(crate) async fn taken_back(&mut self) {
        self.answer.closed().await;
    }
}

/// Asks at the terminal, for as long as somebody sits there.
pub(crate) struct Asker {
    questions: mpsc::Sender<Open>,
    by: Principal,
}

#[async_trait]
impl Approver for Asker {
    async fn ask(&self, request: &ApprovalRequest, cancel: &Cancel) -> Option<Answer> {
        let (answer, answered) = oneshot::channel();
        let open = Open { request: request.clone(), answer };
        let asked = async {
            self.questions.send(open).await.ok()?;
            answered.await.ok()
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => None,
            approval = asked => {
                let nobody = || Approval::Denied { reason: "the terminal is gone".to_owned() };
                Some(Answer { approval: approval.unwrap_or_else(nobody), by: self.by.clone() })
            }
        }
    }
}

/// Where questions come in and answers are typed.
pub(crate) struct Desk {
    questions: mpsc::Receiver<Open>,
    lines: Lines,
}

/// Makes both ends for whoever has a terminal of their own.
pub(crate) fn pair(by: &Principal) -> (Arc<dyn Approver>, mpsc::Receiver<Open>) {
    let (sender, questions) = mpsc::channel(WAITING);
    (Arc::new(Asker { questions: sender, by: by.clone() }), questions)
}

/// Makes both ends where a person can be asked; nothing where not, and then such calls are refused.
pub(crate) fn open(
    global: &Global,
    terminal: &Terminal,
    by: &Principal,
) -> Option<(Arc<dyn Approver>, Desk)> {
    let can_ask = terminal.format == Format::Text
        && terminal.interactive
        && io::stdin().is_terminal()
        && !global.no_input;
    can_ask.then(|| {
        let (sender, questions) = mpsc::channel(WAITING);
        let asker = Asker { questions: sender, by: by.clone() };
        (Arc::new(asker) as Arc<dyn Approver>, Desk { questions, lines: Lines::default() })
    })
}

impl Desk {
    /// Waits for the next question. Cancel safe.
    pub(crate) async fn question(&mut self) -> Open {
        match self.questions.recv().await {
            Some(open) => {
                // What was typed before it was asked is no answer to it.
                let _ =
                    rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
                self.lines.forget();
                open
            }
            None => std::future::pending().await,
        }
    }

    /// Waits for the next line that is typed; none at the end of the input. Cancel safe.
    pub(crate) async fn line(&mut self) -> Option<String> {
        self.lines.next().await
    }
}

/// The lines of standard input, each read when it is wanted.
///
/// A terminal cannot be read without a thread that waits on it. It is not joined: it ends with the process,
/// whatever nobody types.
#[derive(Default)]
struct Lines {
    reader: Option<(threads::Sender<()>, mpsc::Receiver<Option<String>>)>,
    /// Whether the thread waits for a line already.
    waits: bool,
}

impl Lines {
    async fn next(&mut self) -> Option<String> {
        let (wanted, lines) = self.reader.get_or_insert_with(start);
        if !self.waits {
            wanted.send(()).ok()?;
            self.waits = true;
        }
        let line = lines.recv().await;
        self.waits = false;
        line.flatten()
    }

    fn forget(&mut self) {
        if let Some((_, lines)) = &mut self.reader
            && lines.try_recv().is_ok()
        {
            self.waits = false;
        }
    }
}

fn start() -> (threads::Sender<()>, mpsc::Receiver<Option<String>>) {
    let (wanted, wants) = threads::channel();
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        while wants.recv().is_ok() {
            let mut line = String::new();
            let read = io::stdin().lock().read_line(&mut line);
            let line = matches!(read, Ok(bytes) if bytes > 0).then_some(line);
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    (wanted, lines)
}
