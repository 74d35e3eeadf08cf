//! Programs that run while the tasks work, as they are written.

use std::collections::BTreeSet;

use formwork_protocols::{
    Span,
    spec::{ReadySpec, ServiceSpec},
};

use super::{check::argv_is_sound, document::ServiceDocument, plan::Reader, refer::Side};

/// How long a service may take to be ready where nobody says otherwise.
const READY: Span = Span::from_secs(60);

/// How often one is started again where nobody says otherwise.
const RESTARTS: u32 = 1;

impl Reader<'_> {
    /// Reads the services of a workflow.
    pub(super) fn services(&mut self, written: &[ServiceDocument]) -> Vec<ServiceSpec> {
        let mut names = BTreeSet::new();
        let mut specs = Vec::new();
        for (at, ServiceDocument { name, command, ready, restarts }) in written.iter().enumerate() {
            let place = format!("/services/{at}");
            if !names.insert(name) {
                let message = format!("another service is named {name}");
                self.fault(&format!("{place}/name"), message, None);
            }
            self.program(&format!("{place}/command"), command);
            if let Some(ready) = ready {
                self.program(&format!("{place}/ready/command"), &ready.command);
            }
            specs.push(ServiceSpec {
                name: name.clone(),
                argv: command.clone(),
                ready: ready.as_ref().map(|ready| ReadySpec {
                    argv: ready.command.clone(),
                    timeout: ready.timeout.unwrap_or(READY),
                }),
                restarts: restarts.unwrap_or(RESTARTS),
            });
        }
        specs
    }

    /// Reads a program that is run for no task: it is there before there is any result.
    fn program(&mut self, place: &str, argv: &[String]) {
        if argv_is_sound(self.document, place, argv, &mut self.faults) {
            self.words(place, argv, &[], Side::Around);
        }
    }
}
