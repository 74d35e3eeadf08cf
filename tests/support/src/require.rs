//! Which services must be there for a test run to count.

/// The variable that names the services, separated by commas, whose absence is a failure.
const REQUIRE: &str = "FORMWORK_REQUIRE";

/// Returns `service`, or says by name that tests which need it are skipped.
///
/// # Panics
/// When `FORMWORK_REQUIRE` names the absent service: a gate that skips in silence is no gate.
#[expect(clippy::disallowed_methods, reason = "a test run is configured by its environment")]
#[expect(clippy::print_stderr, reason = "a skip is told to whoever reads the test's output")]
pub(crate) fn present_or_skipped<T, E: std::fmt::Display>(
    name: &str,
    service: Result<T, E>,
) -> Option<T> {
    match service {
        Ok(service) => Some(service),
        Err(why) => {
            let required = std::env::var(REQUIRE).unwrap_or_default();
            assert!(!names(&required, name), "{REQUIRE} names {name}, but {why}");
            eprintln!("SKIP {name}: {why}");
            None
        }
    }
}

fn names(required: &str, name: &str) -> bool {
    required.split(',').any(|one| one.trim() == name)
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn a_service_is_required_by_its_whole_name() {
        assert!(names("nats, postgres", "postgres"));
        assert!(!names("postgresql", "postgres"));
        assert!(!names("", "postgres"));
    }
}
