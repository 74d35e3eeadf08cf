//! Confines a process, and with it whatever it starts: Landlock, seccomp, resource limits.

use std::{
    collections::BTreeMap,
    fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, NetPort, PathBeneath, PathFd,
    PathFdError, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope,
};
use rustix::fs::FileType;
use rustix::process::{Resource as Rlimit, Rlimit as Bounds, getrlimit, setrlimit};
use rustix::thread::CapabilitySet;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Op,
    SeccompCondition as Condition, SeccompFilter, SeccompRule as Rule, TargetArch, sock_filter,
};

use super::{network, seal::OwnNetwork};
use crate::{
    Limits, Network, Protections, Status, proxy,
    wire::{NotRun, Protecting},
};

/// The least that counts as confinement of files: before it, `truncate(2)` empties any file.
const FILES: ABI = ABI::V3;
/// Also keeps device control and signals in, where the kernel can.
const FILES_AT_BEST: ABI = ABI::V5;
const SCOPES: ABI = ABI::V6;
/// The first that judges connections.
const CONNECTIONS: ABI = ABI::V4;

/// Hold no data, and nearly every program opens one of them.
const DEVICES: &[&str] = &["/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"];

/// What happens to a command's process before its program starts.
pub(super) struct Setup {
    priority: i32,
    has_terminal: bool,
    confinement: Option<Confinement>,
}

struct Confinement {
    limits: Limits,
    cwd: PathBuf,
    rules: RulesetCreated,
    filters: &'static Filters,
    /// Where the socket is to be sent that listens in its own network, if it has one.
    way_out: Option<OwnedFd>,
}

impl Setup {
    /// Prepares all that can fail for a reason worth naming: opens the roots, compiles the filters. The command works
    /// in `cwd`. With a `way_out` it has a network of its own, and the socket that listens in it is sent there.
    pub(super) fn new(
        priority: i32,
        limits: Option<&Limits>,
        cwd: &Path,
        way_out: Option<OwnedFd>,
    ) -> Result<Self, NotRun> {
        let confinement =
            limits.map(|limits| Confinement::new(limits, cwd, way_out)).transpose()?;
        Ok(Self { priority, has_terminal: false, confinement })
    }

    /// Makes its standard output, which is a terminal, the one that controls its session.
    pub(super) fn at_terminal(mut self) -> Self {
        self.has_terminal = true;
        self
    }

    /// Applies to the calling process, in the order in which one does not prevent the next.
    pub(super) fn apply(self) -> Result<(), NotRun> {
        let failed = |errno| super::supervisor::missing(Protecting::Rlimit, errno);
        rustix::process::setsid().map_err(failed)?;
        if self.has_terminal {
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdout())
                .map_err(|errno| NotRun::NotStarted { errno: errno.raw_os_error() })?;
        }
        // Fails only where it could not be raised before either.
        let _ = rustix::process::setpriority_process(None, self.priority);
        self.confinement.map_or(Ok(()), Confinement::apply)
    }
}

impl Confinement {
    fn new(limits: &Limits, cwd: &Path, way_out: Option<OwnedFd>) -> Result<Self, NotRun> {
        let sockets = match (&way_out, &limits.network) {
            (Some(_), _) => Sockets::Tcp,
            // What goes through a gateway comes with a way out.
            (None, Network::Off | Network::Through(_)) => Sockets::None,
            (None, Network::Unix) => Sockets::Unix,
            (None, Network::Allowed) => Sockets::All,
        };
        let filters = filters(sockets).map_err(|reason| NotRun::ProtectionMissing {
            protection: Protecting::Seccomp,
            reason,
        })?;
        let mut rules = files(limits, sockets)?;
        if way_out.is_some() {
            let proxy = NetPort::new(proxy::PORT, AccessNet::ConnectTcp);
            rules = rules.add_rule(proxy).map_err(|error| no_landlock(&error))?;
        }
        Ok(Self { limits: limits.clone(), cwd: cwd.to_owned(), rules, filters, way_out })
    }

    fn apply(self) -> Result<(), NotRun> {
        let own_network = if self.way_out.is_some() { OwnNetwork::Yes } else { OwnNetwork::No };
        super::seal::apply(&self.limits, &self.cwd, own_network)?;
        if let Some(control) = &self.way_out {
            network::open(control)?;
        }
        limit_resources(&self.limits)?;
        for capability in UNNEEDED.iter() {
            // Refused only to those who are not root, and who have none of these either.
            let _ = rustix::thread::remove_capability_from_bounding_set(capability);
        }
        let enforced = self.rules.restrict_self().map_err(|error| no_landlock(&error))?.ruleset;
        if enforced == RulesetStatus::NotEnforced {
            return Err(NotRun::ProtectionMissing {
                protection: Protecting::Landlock,
                reason: "the kernel did not enforce the rules".into(),
            });
        }
        for filter in self.filters {
            seccompiler::apply_filter(filter).map_err(|error| NotRun::ProtectionMissing {
                protection: Protecting::Seccomp,
                reason: error.to_string(),
            })?;
        }
        Ok(())
    }
}

fn no_landlock(error: &RulesetError) -> NotRun {
    NotRun::ProtectionMissing { protection: Protecting::Landlock, reason: error.to_string() }
}

/// Returns the rules that grant the roots and deny the rest.
fn files(limits: &Limits, sockets: Sockets) -> Result<RulesetCreated, NotRun> {
    let read = AccessFs::from_read(FILES_AT_BEST);
    // A device file that the command makes would reach whatever disk it names.
    let made = AccessFs::MakeBlock | AccessFs::MakeChar;
    let write = AccessFs::from_all(FILES_AT_BEST) & !made;
    if let Sockets::Tcp = sockets
        && let Err(error) = judging_connections().and_then(Ruleset::create)
    {
        let reason =
            format!("Landlock judges no connections, which it does from Linux 6.7 on: {error}");
        return Err(NotRun::ProtectionMissing { protection: Protecting::Network, reason });
    }
    let rules = match sockets {
        Sockets::Tcp => judging_connections(),
        Sockets::None | Sockets::Unix | Sockets::All => Ok(Ruleset::default()),
    };
    let mut rules =
        rules.and_then(ruleset).and_then(Ruleset::create).map_err(|error| no_landlock(&error))?;
    // Who may write may read.
    let is_written = |root: &Path| limits.write_roots.iter().any(|written| written == root);
    for root in limits.read_roots.iter().filter(|root| !is_written(root)) {
        rules = grant(rules, root, read)?;
    }
    for root in &limits.write_roots {
        rules = grant(rules, root, write)?;
    }
    let devices = DEVICES.iter().map(Path::new).filter(|device| !is_written(device));
    for device in devices.filter(|device| device.exists()) {
        rules = grant(rules, device, write & !AccessFs::Execute)?;
    }
    Ok(rules)
}

/// Returns rules that deny every connection by TCP, and to listen.
fn judging_connections() -> Result<Ruleset, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessNet::from_all(CONNECTIONS))
}

/// Returns `rules` that deny everything of files: the least hard, the rest as far as the kernel goes.
fn ruleset(rules: Ruleset) -> Result<Ruleset, RulesetError> {
    rules
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(FILES))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(FILES_AT_BEST))?
        .scope(Scope::from_all(SCOPES))
}

fn grant(
    rules: RulesetCreated,
    root: &Path,
    access: landlock::BitFlags<AccessFs>,
) -> Result<RulesetCreated, NotRun> {
    let opened = PathFd::new(root).map_err(|error| NotRun::RootMissing {
        root: root.as_os_str().to_owned(),
        errno: errno_of(&error),
    })?;
    let found = rustix::fs::fstat(&opened).map_err(|errno| NotRun::RootMissing {
        root: root.as_os_str().to_owned(),
        errno: errno.raw_os_error(),
    })?;
    let access = match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => access,
        _ => access & AccessFs::from_file(FILES_AT_BEST),
    };
    rules.add_rule(PathBeneath::new(opened, access)).map_err(|error| NotRun::ProtectionMissing {
        protection: Protecting::Landlock,
        reason: format!("{}: {error}", root.display()),
    })
}

fn errno_of(error: &PathFdError) -> i32 {
    match error {
        PathFdError::OpenCall { source, .. } => source.raw_os_error().unwrap_or_default(),
        _ => 0,
    }
}

/// Limits the calling process and what it starts.
fn limit_resources(limits: &Limits) -> Result<(), NotRun> {
    let seconds =
        limits.cpu.map(|cpu| cpu.as_secs().saturating_add(u64::from(cpu.subsec_nanos() > 0)));
    let wanted = [
        // A core file is a write that no root allows.
        (Rlimit::Core, Some(0)),
        (Rlimit::Cpu, seconds),
        (Rlimit::Fsize, limits.file_size),
        (Rlimit::Nofile, limits.open_files),
        (Rlimit::Nproc, limits.processes.map(most_of_user)),
    ];
    for (resource, limit) in wanted {
        let Some(limit) = limit else { continue };
        setrlimit(resource, lowered(getrlimit(resource), limit))
            .map_err(|errno| super::supervisor::missing(Protecting::Rlimit, errno))?;
    }
    Ok(())
}

/// Returns how many threads this user may have, since the kernel counts those all together: as many
/// as there are on the whole machine, and enough for `processes` more with some threads each. It does not bind root.
fn most_of_user(processes: u32) -> u64 {
    const SLACK: u64 = 1024;
    let there = crate::proc::threads();
    there.saturating_add(u64::from(processes).saturating_mul(2)).saturating_add(SLACK)
}

/// Returns `limit`, or what is there already where that is less, since nobody may raise it.
fn lowered(there: Bounds, limit: u64) -> Bounds {
    let limit = there.maximum.map_or(limit, |maximum| maximum.min(limit));
    Bounds { current: Some(limit), maximum: Some(limit) }
}

/// Reach other processes, the kernel's settings, or files past Landlock; no build or test needs them.
const DENIED: &[libc::c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// What root could do, and confined root cannot: above all read other processes, and raise limits.
const UNNEEDED: CapabilitySet = CapabilitySet::AUDIT_CONTROL
    .union(CapabilitySet::AUDIT_READ)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::IPC_OWNER)
    .union(CapabilitySet::LINUX_IMMUTABLE)
    .union(CapabilitySet::MAC_ADMIN)
    .union(CapabilitySet::MAC_OVERRIDE)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SYSLOG)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_BOOT)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::SYS_MODULE)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_PACCT)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::SYS_RAWIO)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::SYS_TIME)
    .union(CapabilitySet::SYS_TTY_CONFIG)
    .union(CapabilitySet::WAKE_ALARM);

/// Port access.
#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[libc::c_long] = &[libc::SYS_ioperm, libc::SYS_iopl];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_HERE: &[libc::c_long] = &[];

/// Each makes `clone(2)` leave a namespace.
const NAMESPACES: &[libc::c_int] = &[
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// The old way to a packet socket, which is raw too; the C library's own name for it is deprecated.
const SOCK_PACKET: libc::c_int = 10;

/// Each types into the terminal as if the user had.
const TYPING: &[u64] = &[0x5412, 0x541C]; // `TIOCSTI` and `TIOCLINUX` of ioctl_tty(2).

/// Each has whoever runs a file do so with the rights of its owner or of its group, whoever that is.
const LENDING: [u32; 2] = [libc::S_ISUID, libc::S_ISGID];

/// Calls that give a file its mode, with the place of the mode among their arguments.
const MODES: &[(libc::c_long, u8)] =
    &[(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (FCHMODAT2, 2), (libc::SYS_mknodat, 2)];
/// The same of an older kind, which newer processors do not have.
#[cfg(target_arch = "x86_64")]
const MODES_HERE: &[(libc::c_long, u8)] =
    &[(libc::SYS_chmod, 1), (libc::SYS_creat, 1), (libc::SYS_mknod, 1)];
#[cfg(not(target_arch = "x86_64"))]
const MODES_HERE: &[(libc::c_long, u8)] = &[];

/// Calls that may make a file, with the places of their flags and of its mode.
const OPENING: &[(libc::c_long, u8, u8)] = &[(libc::SYS_openat, 2, 3)];
#[cfg(target_arch = "x86_64")]
const OPENING_HERE: &[(libc::c_long, u8, u8)] = &[(libc::SYS_open, 1, 2)];
#[cfg(not(target_arch = "x86_64"))]
const OPENING_HERE: &[(libc::c_long, u8, u8)] = &[];

/// The number of fchmodat2(2) on every architecture, which the library does not name everywhere.
const FCHMODAT2: libc::c_long = 452;

/// The flags with which an opened file may be a new one: by name, and without one.
const MAKING: [libc::c_int; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];

/// Which sockets can be made.
#[derive(Clone, Copy)]
enum Sockets {
    None,
    Unix,
    /// Every kind but the raw ones.
    All,
    /// Those of TCP, in a network of the command's own.
    Tcp,
}

/// What judges the system calls of a process, each by itself.
type Filters = [BpfProgram; 2];

/// Compiles all filters there are, for the processes that are forked off this one.
pub(super) fn prepare() {
    for made in [Sockets::None, Sockets::Unix, Sockets::All, Sockets::Tcp] {
        // Whoever needs one that cannot be compiled is told so.
        let _ = filters(made);
    }
}

/// Returns the filters of system calls, or why there can be none.
fn filters(made: Sockets) -> Result<&'static Filters, String> {
    static COMPILED: [OnceLock<Filters>; 4] = [const { OnceLock::new() }; 4];
    let compiled = match made {
        Sockets::None => &COMPILED[0],
        Sockets::Unix => &COMPILED[1],
        Sockets::All => &COMPILED[2],
        Sockets::Tcp => &COMPILED[3],
    };
    match compiled.get() {
        Some(filters) => Ok(filters),
        None => compile_all(made).map(|filters| compiled.get_or_init(|| filters)),
    }
}

fn compile_all(made: Sockets) -> Result<Filters, String> {
    let Lists { denied, absent } = lists(made)?;
    let absent = compile(absent, libc::ENOSYS)?;
    Ok([compile(denied, libc::EPERM)?, [other_interface(), absent].concat()])
}

/// Calls with the rules by which they are refused; those without any always are.
struct Lists {
    /// They may not be made.
    denied: BTreeMap<i64, Vec<Rule>>,
    /// They are not there.
    absent: BTreeMap<i64, Vec<Rule>>,
}

fn lists(made: Sockets) -> Result<Lists, String> {
    let mut denied: BTreeMap<i64, Vec<Rule>> = BTreeMap::new();
    for call in DENIED.iter().chain(DENIED_HERE) {
        denied.insert(*call, Vec::new());
    }
    denied.insert(libc::SYS_socket, sockets(made)?);
    let flags = NAMESPACES.iter().map(|flag| u64::from(flag.unsigned_abs()));
    let leaves = flags.map(|flag| rule([condition(0, Length::Qword, Op::MaskedEq(flag), flag)?]));
    denied.insert(libc::SYS_clone, leaves.collect::<Result<_, _>>()?);
    let types = TYPING.iter().map(|call| rule([condition(1, Length::Dword, Op::Eq, *call)?]));
    denied.insert(libc::SYS_ioctl, types.collect::<Result<_, _>>()?);

    denied.extend(lends()?);

    // The flags of `clone3` and the mode of `openat2` lie in memory, where no filter looks. Told that there is no such
    // call, C libraries and others use `clone` and `openat`.
    let absent = BTreeMap::from([(libc::SYS_clone3, vec![]), (libc::SYS_openat2, vec![])]);
    Ok(Lists { denied, absent })
}

/// Returns when a file may not have the mode that is asked for: what a command makes must not lend its owner's rights
/// to whoever finds it there afterwards, outside.
fn lends() -> Result<BTreeMap<i64, Vec<Rule>>, String> {
    let has = |place: u8, bits: u64| condition(place, Length::Dword, Op::MaskedEq(bits), bits);
    let mut denied = BTreeMap::new();
    for (call, mode) in MODES.iter().chain(MODES_HERE) {
        let rules = LENDING.iter().map(|bit| rule([has(*mode, u64::from(*bit))?]));
        denied.insert(*call, rules.collect::<Result<_, _>>()?);
    }
    for (call, flags, mode) in OPENING.iter().chain(OPENING_HERE) {
        let mut rules = Vec::new();
        for making in MAKING {
            for bit in LENDING {
                let making = has(*flags, u64::from(making.unsigned_abs()))?;
                rules.push(rule([making, has(*mode, u64::from(bit))?])?);
            }
        }
        denied.insert(*call, rules);
    }
    Ok(denied)
}

/// Returns when `socket(2)` is denied; an empty list means always.
fn sockets(made: Sockets) -> Result<Vec<Rule>, String> {
    let family = |op: Op, value: libc::c_int| {
        condition(0, Length::Dword, op, u64::from(value.unsigned_abs()))
    };
    let kind = |value: libc::c_int| {
        // The upper bits of the type are flags.
        condition(1, Length::Dword, Op::MaskedEq(0xF), u64::from(value.unsigned_abs()))
    };
    match made {
        Sockets::None => Ok(Vec::new()),
        Sockets::Unix => Ok(vec![rule([family(Op::Ne, libc::AF_UNIX)?])?]),
        Sockets::All => Ok(vec![
            rule([
                family(Op::Ne, libc::AF_UNIX)?,
                family(Op::Ne, libc::AF_INET)?,
                family(Op::Ne, libc::AF_INET6)?,
                family(Op::Ne, libc::AF_NETLINK)?,
            ])?,
            // Netlink sockets are raw by name only.
            rule([kind(libc::SOCK_RAW)?, family(Op::Ne, libc::AF_NETLINK)?])?,
            rule([kind(SOCK_PACKET)?])?,
        ]),
        Sockets::Tcp => {
            let protocol = |op: Op, value: libc::c_int| {
                condition(2, Length::Dword, op, u64::from(value.unsigned_abs()))
            };
            let mut denied = vec![
                rule([family(Op::Ne, libc::AF_INET)?, family(Op::Ne, libc::AF_INET6)?])?,
                // Others that stream, MPTCP and SCTP, are not judged by who judges TCP.
                rule([protocol(Op::Ne, 0)?, protocol(Op::Ne, libc::IPPROTO_TCP)?])?,
            ];
            for other in (0..=0xF).filter(|kind| *kind != libc::SOCK_STREAM) {
                denied.push(rule([kind(other)?])?);
            }
            Ok(denied)
        }
    }
}

fn condition(argument: u8, length: Length, op: Op, value: u64) -> Result<Condition, String> {
    Condition::new(argument, length, op, value).map_err(|error| error.to_string())
}

fn rule<const N: usize>(conditions: [Condition; N]) -> Result<Rule, String> {
    Rule::new(conditions.into()).map_err(|error| error.to_string())
}

/// Returns what refuses every call of the x32 interface, before a filter that judges those of the usual one: the same calls
/// under a second number each, which few kernels have, and programs of one's own system never need.
fn other_interface() -> BpfProgram {
    /// From here on numbers are those of x32: `__X32_SYSCALL_BIT` of the kernel.
    const X32: u32 = 0x4000_0000;
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    match cfg!(target_arch = "x86_64") {
        true => vec![NUMBER, unless_from(X32), sock_filter { k: refused, ..RETURN }],
        false => Vec::new(),
    }
}

/// Loads the number of the call, the first word of what a filter sees.
const NUMBER: sock_filter =
    sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: 0 };
const RETURN: sock_filter =
    sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
const GO_ON: sock_filter =
    sock_filter { code: (libc::BPF_JMP | libc::BPF_JA) as u16, jt: 0, jf: 0, k: 0 };

/// Passes over the next instruction unless the number is this or greater.
fn unless_from(number: u32) -> sock_filter {
    let code = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    sock_filter { code, jt: 0, jf: 1, k: number }
}

/// So many calls are compared one after the other. When a filter is put in place, the kernel tries it on each of its calls,
/// which takes longer than all else where each is compared with all that are listed.
const BLOCK: usize = 8;

/// Returns a filter that answers `errno` to the calls that are listed, by their rules.
fn compile(calls: BTreeMap<i64, Vec<Rule>>, errno: libc::c_int) -> Result<BpfProgram, String> {
    let calls: Vec<_> = calls.into_iter().collect();
    let mut joined = BpfProgram::new();
    let mut next = None;
    for block in calls.chunks(BLOCK).rev() {
        let own = compile_block(block.iter().cloned().collect(), errno)?;
        let number = |call: i64| u32::try_from(call).map_err(|error| error.to_string());
        let over = match next {
            Some(next) => {
                let length = u32::try_from(own.len()).map_err(|error| error.to_string())?;
                vec![NUMBER, unless_from(number(next)?), sock_filter { k: length, ..GO_ON }]
            }
            None => Vec::new(),
        };
        joined = [over, own, joined].concat();
        next = block.first().map(|(call, _)| *call);
    }
    Ok(joined)
}

/// Returns a filter that compares a call with each that is listed.
fn compile_block(
    calls: BTreeMap<i64, Vec<Rule>>,
    errno: libc::c_int,
) -> Result<BpfProgram, String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    let errno = SeccompAction::Errno(errno.unsigned_abs());
    SeccompFilter::new(calls, SeccompAction::Allow, errno, arch)
        .and_then(BpfProgram::try_from)
        .map_err(|error| error.to_string())
}

pub(crate) fn probe() -> Protections {
    let active = |by: &str| Status::Active(by.into());
    let files = match ruleset(Ruleset::default()).and_then(Ruleset::create) {
        Ok(_) => active(&landlock_version()),
        Err(error) => Status::Missing(format!("Landlock: {error}")),
    };
    let scoped = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::from_all(SCOPES))
        .and_then(Ruleset::create);
    let scopes = match scoped {
        Ok(_) => active("Landlock"),
        Err(error) => Status::Missing(format!("Landlock: {error}")),
    };
    let system_calls = match (filters(Sockets::None), actions()) {
        (Err(reason), _) | (Ok(_), Err(reason)) => Status::Missing(format!("seccomp: {reason}")),
        (Ok(_), Ok(())) => active("seccomp"),
    };
    let processes = match super::cgroup::probe() {
        Ok(group) => active(&format!("control group below {group}, resource limit, counts")),
        Err(_) if !rustix::process::getuid().is_root() => active("resource limit, counts"),
        Err(reason) => Status::Weak(format!("counts alone; no control group: {reason}")),
    };
    let memory = active("counts");
    Protections { files, scopes, system_calls, whole_tree: active("subreaper"), processes, memory }
}

/// Names the newest version of Landlock that is known here and that the kernel has.
fn landlock_version() -> String {
    let has = |abi: &ABI| {
        let hard = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        let files = hard.handle_access(AccessFs::from_all(*abi));
        let net = match *abi >= CONNECTIONS {
            true => files.and_then(|rules| rules.handle_access(AccessNet::from_all(*abi))),
            false => files,
        };
        let scoped = match *abi >= SCOPES {
            true => net.and_then(|rules| rules.scope(Scope::from_all(*abi))),
            false => net,
        };
        scoped.and_then(Ruleset::create).is_ok()
    };
    let known = [(ABI::V6, "6 or newer"), (ABI::V5, "5"), (ABI::V4, "4"), (ABI::V3, "3")];
    let found = known.iter().find(|(abi, _)| has(abi)).map_or("?", |(_, name)| name);
    format!("Landlock ABI {found}")
}

/// Says whether the kernel filters system calls at all.
fn actions() -> Result<(), String> {
    let path = "/proc/sys/kernel/seccomp/actions_avail";
    let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    match text.split_ascii_whitespace().any(|action| action == "errno") {
        true => Ok(()),
        false => Err(format!("{path} does not list errno")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a filter sees of a call.
    struct Call {
        number: u32,
        arguments: [u64; 6],
    }

    impl Call {
        /// Returns the four bytes at an offset of `struct seccomp_data`.
        fn word(&self, at: u32) -> u32 {
            let arch = match std::env::consts::ARCH {
                "x86_64" => 0xC000_003E,
                "aarch64" => 0xC000_00B7,
                other => panic!("what is {other} to the kernel?"),
            };
            match at {
                0 => self.number,
                4 => arch,
                _ => {
                    let argument = self.arguments[(at as usize - 16) / 8];
                    (argument >> (8 * (at % 8))) as u32
                }
            }
        }
    }

    /// What a filter says, and after how many instructions.
    struct Judged {
        action: u32,
        steps: usize,
    }

    /// Judges a call as the kernel does.
    fn judged(filter: &[sock_filter], call: &Call) -> Judged {
        let (mut at, mut value, mut steps) = (0, 0_u32, 0);
        loop {
            steps += 1;
            let sock_filter { code, jt, jf, k } = filter[at];
            let jump = |holds: bool| usize::from(if holds { jt } else { jf });
            at += 1;
            match u32::from(code) {
                0x20 => value = call.word(k),
                0x54 => value &= k,
                0x05 => at += k as usize,
                0x15 => at += jump(value == k),
                0x25 => at += jump(value > k),
                0x35 => at += jump(value >= k),
                0x06 => return Judged { action: k, steps },
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    proptest! {
        #[test]
        fn a_filter_in_blocks_judges_as_one_that_compares_with_all(
            numbers in prop::collection::vec(prop_oneof![0..600_u32, 0x4000_0000..0x4000_0300_u32], 64),
            arguments in prop::array::uniform6(prop_oneof![0..20_u64, 0..0o10000_u64, any::<u64>()]),
        ) {
            for made in [Sockets::None, Sockets::Unix, Sockets::All, Sockets::Tcp] {
                let Lists { denied, absent } = lists(made).unwrap();
                for (list, errno) in [(denied, libc::EPERM), (absent, libc::ENOSYS)] {
                    let plain = compile_block(list.clone(), errno).unwrap();
                    let blocks = compile(list, errno).unwrap();
                    for number in &numbers {
                        let call = Call { number: *number, arguments };
                        let both = [&plain, &blocks].map(|filter| judged(filter, &call).action);
                        prop_assert_eq!(both[0], both[1], "{}", number);
                    }
                }
            }
        }
    }

    #[test]
    fn of_two_filters_one_refuses_every_call_of_another_interface() {
        let filters = filters(Sockets::All).unwrap();
        let strictest = |number: u32| {
            let call = Call { number, arguments: [0; 6] };
            filters.iter().map(|filter| judged(filter, &call).action).min().unwrap()
        };
        let (allowed, refused) = (libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_ERRNO);
        let number = |call: libc::c_long| u32::try_from(call).unwrap();

        assert_eq!(strictest(number(libc::SYS_read)), allowed);
        assert_eq!(strictest(number(libc::SYS_ptrace)), refused | 1);
        assert_eq!(strictest(number(libc::SYS_clone3)), refused | 38);
        assert_eq!(strictest(number(libc::SYS_clone)), allowed);
        if cfg!(target_arch = "x86_64") {
            assert_eq!(strictest(0x4000_0000), refused | 1);
            assert_eq!(strictest(u32::MAX), refused | 1);
        }
    }

    #[test]
    fn no_call_is_compared_with_all_that_are_listed() {
        let denied = lists(Sockets::None).unwrap().denied;
        let plain = compile_block(denied.clone(), libc::EPERM).unwrap();
        let blocks = compile(denied, libc::EPERM).unwrap();
        // Whatever is not listed is compared longest.
        let steps = |filter: &[sock_filter], number: u32| {
            judged(filter, &Call { number, arguments: [0; 6] }).steps
        };
        let longest = |filter: &[sock_filter]| (0..500).map(|it| steps(filter, it)).max().unwrap();

        assert!(longest(&blocks) * 2 < longest(&plain), "{} steps", longest(&blocks));
    }
}
