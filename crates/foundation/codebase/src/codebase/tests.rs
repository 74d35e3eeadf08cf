#![cfg(all(feature = "cpp", feature = "ruby", feature = "tsx"))] // Every language: `--all-features` has them.
use formwork_protocols::source::SymbolKind;
use proptest::strategy::Strategy as _;

use super::*;

/// Returns a line for each symbol: whether it is exported, its line, its name and its signature.
fn shown(path: &str, text: &str) -> String {
    let found = Codebase.symbols(path, text.as_bytes()).unwrap();
    let line = |symbol: Symbol| {
        let mark = if symbol.exported { '+' } else { '-' };
        format!("{mark}{} {} | {}", symbol.line, symbol.name, symbol.signature)
    };
    found.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn rust_exports_what_is_pub_to_everybody() {
    let text = r#"
pub mod shapes {
    pub struct Circle<T: Ord>(pub T, u8) where T: Clone;
    impl<T: Ord> Circle<T> where T: Clone {
        pub const fn new(mut at: T, /* size */ size: u8,) -> Self { todo!() }
        fn own(&self) {}
    }
}
pub struct Square { pub side: u32, cache: Vec<u8> }
struct Hidden;
impl Hidden { pub fn reached(&self) {} }
impl Square {
    #[must_use]
    pub fn area(mut self: Box<Self>, by: &'static mut [u8; 3]) -> Option<u32> { None }
    pub(crate) fn inner(&mut self) {}
}
pub enum Kind { One = 1, Two { a: u8 }, Three(u8, String) }
pub trait Draw: Send + 'static { const N: usize = 3; type Of; fn draw(&self, x: u32) -> bool { true } }
pub unsafe extern "C" fn raw(x: *const u8) {}
pub const LIMIT: usize = 10;
pub type Pairs<'a> = Vec<(&'a str, u8)>;
pub use crate::other::{one, two as second, deep::{self, *}};
use std::fmt;
#[macro_export] macro_rules! shout { () => {} }
macro_rules! quiet { () => {} }
pub(super) fn above() {}
#[cfg(test)] mod tests { pub fn helper() {} }
"#;

    insta::assert_snapshot!(shown("src/lib.rs", text));
}

#[test]
fn python_exports_what_has_no_underscore_or_what_all_names() {
    let text = r#"
from .beside import thing, other as other
LIMIT: int = 10
_SECRET = 1
class Circle(Shape, metaclass=Meta):
    """A circle."""
    sides: int = 0
    def __init__(self, r, *, unit='cm'):
        self.r = r
    @property
    def area(self) -> float: return 1
    @cache
    def _own(self): pass
    async def draw(self, where: "Canvas" = None, *args, **kwargs,): pass
class _Hidden:
    def reached(self): pass
if True:
    def late(a, b = 2): pass
else:
    def late(a, b=3): pass
"#;

    let bare = shown("a.py", text);
    let said = shown("a.py", &format!("__all__ = ['late', \"thing\"]\n{text}"));
    let package =
        shown("pkg/__init__.py", "from .a import b, _c\nfrom os import path\nfrom .d import *\n");

    insta::assert_snapshot!(bare);
    insta::assert_snapshot!(said);
    insta::assert_snapshot!(package);
}

#[test]
fn javascript_exports_by_either_of_its_systems() {
    let modern = r#"
export function f(a, {b, c} = {}, ...rest) { return 1 }
export const LIMIT = 10, area = async (r, unit = 'cm') => { };
export default class Circle extends Shape { #r = 1; static of(r) {} get area() {} }
function own(x) {}
class Later { draw(on) {} }
export { own, Later as Soon };
export { one as two } from './other.js';
export * from './all.js';
export const { p, q: { r } } = make();
"#;
    let common = r#"
function f(a) {}
const hidden = 1;
class Circle { area() {} }
module.exports = { f, Circle, g: function (x, y) {}, limit: 10, h() {} };
exports.late = (z) => z;
"#;

    insta::assert_snapshot!(shown("a.mjs", modern));
    insta::assert_snapshot!(shown("a.js", common));
}

#[test]
fn typescript_exports_with_its_types() {
    let text = r#"
export interface Shape<T extends object = {}> extends Base { readonly area?: number; draw(on: Canvas): void; (x: string): T }
export type Pair = readonly [number, 'a' | "b"];
export enum Kind { One = 1, Two }
export abstract class Circle<T> implements Shape<T> {
  private r = 1;
  protected unit: string = 'cm';
  constructor(private readonly at: Point, public size?: number) { super() }
  abstract grow(by: number): this;
  public static async of<T>(r: T): Promise<Circle<T>> { return null! }
}
export function over(a: string): void;
export function over(a: number): void;
export function over(a: any) {}
export const area = <T,>(shape: Shape<T>): number => 1;
export namespace Inner { export const deep: string = ''; const own = 1 }
declare function ambient(x: number): void;
@decorated class Later {}
export default Later;
"#;

    insta::assert_snapshot!(shown("a.ts", text));
    assert_eq!(
        shown("a.tsx", "export const View = (p: Props): Node => <div a={1}/>;"),
        "+1 View | View = (p: Props): Node"
    );
}

#[test]
fn go_exports_what_begins_with_a_capital_letter() {
    let text = r#"package shapes

type Circle[T any] struct {
	R, Unit float64 `json:"r"`
	at      Point
	*Base
	io.Reader
}
type hidden struct{}
type Shape interface {
	Area(scale float64) (n float64, err error)
	Base
	~int | ~string
}
type Name = string
func (c *Circle[T]) Area(by ...func(int) string) (float64, error) { return 0, nil }
func (h hidden) Reached() {}
func New[T any](r []T, m map[string]int) *Circle[T] { return nil }
func own() {}
const Limit, other = 1, 2
var (
	Default *Circle[int] = nil
)
"#;

    insta::assert_snapshot!(shown("shapes.go", text));
    assert_eq!(
        shown("shapes_test.go", "package s\nfunc TestArea() {}\n"),
        "-2 TestArea | func TestArea()"
    );
}

#[test]
fn java_exports_what_is_public_or_protected() {
    let text = r#"package a;
public class Circle<T extends Number> extends Shape implements Drawn {
  public static final int LIMIT = 10, OTHER[] = {1};
  private int r;
  @Deprecated public Circle(@Nullable T r, int... more) throws IOException { }
  protected synchronized double area(final int scale) { return 1; }
  void own() {}
  public enum Kind { ONE(1), TWO { }; public int value() { return 1; } }
  interface Inner { void reached(); }
  public record Pair(int a, String b) { }
}
interface Drawn { void draw(); }
public interface Open { void draw(int[] on); private void own() {} int N = 1; }
"#;

    insta::assert_snapshot!(shown("Circle.java", text));
}

#[test]
fn c_exports_what_is_not_static() {
    let text = r#"
#ifndef SHAPE_H
#define SHAPE_H
#define LIMIT 10
#define AREA(r, s) ((r) * (s))
extern int count;
static int own(int a) { return a; }
struct circle { double r; const char *unit[2]; };
typedef struct { int x, y; } point;
enum kind { ONE = 1, TWO };
extern double area(const struct circle *c, double by /* how much */);
inline void (*handler(int sig, void (*fn)(int)))(int);
int (*callback)(void *, int) = 0;
#endif
"#;

    insta::assert_snapshot!(shown("shape.h", text));
    assert_eq!(
        shown("shape.c", "double area(const struct circle*c,double by){return 1;}\nint a = 1, *b;"),
        "+1 area | double area(const struct circle *c, double by)\n+2 a | int a\n+2 b | int *b"
    );
}

#[test]
fn a_header_for_both_c_and_cpp_is_read_as_either() {
    let declared = "int f(int a);\nstruct s { int x; };\n";
    let begin = "#ifdef __cplusplus\nextern \"C\" {\n#endif\n";
    let end = "#ifdef __cplusplus\n} /* extern */\n#endif\n";
    let guarded = format!("#ifndef A_H\n#define A_H\n{begin}{declared}{end}#endif\n");
    let bare = format!("{begin}{declared}{end}");
    let folded = format!(
        "#if defined(__cplusplus)\nextern \"C\" {{\n#if 0\n}} /* an editor's */\n#endif\n#endif\n{declared}\
         #if 0\n{{\n#endif\n{end}"
    );
    let single = "#ifdef __cplusplus\nextern \"C\"\n#endif\nint f(int a);\nstruct s { int x; };\n";
    let macros = format!("__BEGIN_DECLS\n\n{declared}\n__END_DECLS\n");
    let named = format!("G_BEGIN_DECLS\n{declared}G_END_DECLS\n");

    for text in [guarded, bare, folded, single.to_owned(), macros, named] {
        for path in ["a.h", "a.hpp"] {
            let found = Codebase.symbols(path, text.as_bytes()).expect(&text);
            let found: Vec<&str> = found
                .iter()
                .filter(|it| it.kind != SymbolKind::Macro)
                .map(|it| it.signature.as_str())
                .collect();
            assert_eq!(found, ["int f(int a)", "struct s", "int x"], "{path}: {text}");
        }
    }
}

#[test]
fn macros_beside_a_declaration_are_a_part_of_it() {
    for (text, signature) in [
        ("API_EXPORT int f(int a) ATTR(1);", "API_EXPORT int f(int a) ATTR(1)"),
        ("MYLIB_API int WINAPI f(int a);", "MYLIB_API int WINAPI f(int a)"),
        ("MYLIB_API BOOL WINAPI f(void);", "MYLIB_API BOOL WINAPI f(void)"),
        ("API\nint f(int a);", "API int f(int a)"),
        ("API struct s *f(const char *a) THROWS;", "API struct s *f(const char *a) THROWS"),
        ("API FILE * WINAPI f(FILE *a);", "API FILE *WINAPI f(FILE *a)"),
        ("DEPRECATED(\"why\") extern int f(int a);", "DEPRECATED(\"why\") int f(int a)"),
        (
            "__extern_always_inline int f(int a) __THROW __nonnull ((1));",
            "__extern_always_inline int f(int a) __THROW __nonnull ((1))",
        ),
        (
            "static_assert_attr asmlinkage long f(int a)\n{ return if_(x) ; }",
            "static_assert_attr asmlinkage long f(int a)",
        ),
        ("API int f(int a) NOTHROW { return 1; }", "API int f(int a) NOTHROW"),
        (
            "int f(IN int a, _In_reads_(n) const char *b, OUT foo_t *c, int d UNUSED);",
            "int f(IN int a, _In_reads_(n) const char *b, OUT foo_t *c, int d UNUSED)",
        ),
        ("typedef int (WINAPI *f)(int a);", "typedef int(WINAPI *f)(int a)"),
        ("API extern const foo_t f;", "API const foo_t f"),
        ("API int f UNUSED;", "API int f UNUSED"),
        ("int a; } f;", ""),
        ("struct PACKED ALIGNED(4) f { int a; };", "struct PACKED ALIGNED(4) f"),
        ("typedef struct PACKED s { int a; } PACKED f;", "typedef struct PACKED s PACKED f"),
    ] {
        let found = Codebase.symbols("a.h", text.as_bytes()).unwrap_or_default();
        let f = found.iter().find(|it| it.name == "f");
        assert_eq!(f.map_or("", |it| it.signature.as_str()), signature, "{text}");
    }
    // What is left out of one text is a part of the other, whether the grammar takes it as it is or not.
    let alone = shown("a.h", "int f(int a) ATTR(1) { return 1; }");
    let beside = shown("a.h", "int f(int a) ATTR(1) { return 1; }\nAPI int g(void);");
    assert!(beside.starts_with(&alone), "{alone}\n{beside}");
}

#[test]
fn what_follows_no_grammar_is_not_made_to() {
    for text in [
        "int f( {}",
        "int f(int a);\n#ifdef A\n}\n#endif\n",
        "extern \"C\" {\nint f(int a);\n",
        "#ifdef A\nextern \"C\" {\n#endif\nint f(int a);\n",
        "#ifdef A\nstruct s {\n#endif\nint f; };\n",
        "int f(int a) { return 1 +; }",
        "class A { int f( }",
        "API int f(int a));",
    ] {
        let found = Codebase.symbols("a.h", text.as_bytes());
        let is_known = matches!(found, Err(Unreadable::Syntax { .. }));
        assert!(is_known || text.contains("extern \"C\" {\n#endif"), "{text}: {found:?}");
    }
}

#[test]
fn a_byte_that_is_no_text_matters_where_something_is_said_with_it() {
    let told = |path: &str, text: &[u8]| match Codebase.symbols(path, text) {
        Ok(found) => found.into_iter().map(|it| it.signature).collect::<Vec<_>>().join(", "),
        Err(unreadable) => unreadable.to_string(),
    };

    assert_eq!(told("a.c", b"/* caf\xe9 */\nint f(int a) { return '\xe9'; }"), "int f(int a)");
    assert_eq!(told("a.py", b"# \xe4\xf6\ndef f(a): return '\xe4'\n"), "def f(a)");
    assert_eq!(told("a.py", b"def f(a='\xe4'): pass\n"), "it is no text");
    assert_eq!(told("a.c", b"int f\xe9(int a);"), "it is no text");
}

#[test]
fn a_name_may_be_loud() {
    let python = "def f(a): pass\n";

    assert_eq!(shown("A.PY", python), shown("a.py", python));
    assert_eq!(shown("A.H", "#define LIMIT 10\n"), shown("a.h", "#define LIMIT 10\n"));
    assert_eq!(
        shown("a.C", "class A { public: int f(); };"),
        shown("a.cc", "class A { public: int f(); };")
    );
}

#[test]
fn python_does_not_export_what_it_deletes_again() {
    let text = "def f(a): pass\nclass A:\n def g(self): pass\n def h(self): pass\n del g\nb = c = 1\ndel f, b\nif c:\n del c\nf = lambda a, /, *b: a\n";

    let exported: Vec<String> =
        shown("a.py", text).lines().filter(|it| it.starts_with('+')).map(str::to_owned).collect();

    assert_eq!(
        exported,
        ["+2 A | class A", "+4 A.h | def h(self)", "+10 f | f = lambda a, /, *b",]
    );
}

#[test]
fn rust_knows_what_no_build_holds() {
    let text = "#[cfg(any())] pub fn f() {}\n#[cfg(all(test, unix))] pub mod m { pub fn g() {} }\n\
                #[cfg(unix)] pub struct S { #[cfg(any())] pub a: u8, pub b: u8 }\n\
                pub mod n { #![cfg(test)] pub fn h() {} }\n";

    let expected = "+3 S | pub struct S\n+3 S::b | pub b: u8\n+4 n | pub mod n";
    assert_eq!(shown("a.rs", text), expected);
}

#[test]
fn rust_declares_where_it_hands_on_what_its_own_modules_declare() {
    let exported = |path: &str, text: &str| {
        let found = Codebase.symbols(path, text.as_bytes()).unwrap();
        let exported = found.into_iter().filter(|it| it.exported);
        exported.map(|it| format!("{} | {}", it.name, it.signature)).collect::<Vec<_>>()
    };
    let f = "f | pub fn f(a: u8) -> u8".to_owned();
    let inner =
        "mod b { pub fn f(a: u8) -> u8 { a } pub(crate) fn g() {} mod c { pub fn h() {} } }";

    for uses in [
        "pub use b::*;",
        "pub use b::f;",
        "pub use self::b::{f};",
        "pub use crate::b::{self as x, f};",
    ] {
        let found = exported("src/lib.rs", &format!("{inner} {uses}"));
        assert!(found.contains(&f), "{uses}: {found:?}");
        assert!(!found.iter().any(|it| it.contains("fn g") || it.contains("fn h")), "{found:?}");
    }
    let deep = "mod b { mod c { pub struct S; impl S { pub fn new() -> S { S } } } pub use c::S; } pub use b::*;";
    let renamed = "mod b { pub fn f() {} } pub mod c { pub use super::b::f as g; }";
    let variants = "pub enum Kind { One } impl Kind { pub fn new() {} } pub use Kind::*;";
    let hidden = "mod b { fn f() {} } pub use b::f;";
    let shadowed = "mod b { pub fn f(a: u8) {} } pub use b::*; pub fn f() {}";
    assert_eq!(exported("a.rs", deep), ["S | pub struct S", "S::new | pub fn new() -> S"]);
    assert_eq!(exported("a.rs", renamed), ["c | pub mod c", "c::g | pub fn f()"]);
    assert_eq!(
        exported("a.rs", variants),
        ["Kind | pub enum Kind", "Kind::One | One", "Kind::new | pub fn new()", "One | One"]
    );
    assert_eq!(exported("a.rs", hidden), ["f | pub use f"]);
    assert_eq!(exported("a.rs", shadowed), ["f | pub fn f()"]);
}

#[test]
fn rust_files_are_modules_of_the_files_above_them() {
    let place = |path: &str| {
        Codebase.place(path).map(|place| format!("{} by {}", place.name, place.by.join(" ")))
    };

    let above = |name: &str, rest: &str| {
        Some(format!("{name} by src/lib.rs src/main.rs src/mod.rs src.rs{rest}"))
    };
    assert_eq!(place("src/b.rs"), above("b", ""));
    assert_eq!(place("src/b/mod.rs"), above("b", ""));
    let deep = "c by src/b/lib.rs src/b/main.rs src/b/mod.rs src/b.rs";
    assert_eq!(place("src/b/c.rs").as_deref(), Some(deep));
    assert_eq!(place("b.rs").as_deref(), Some("b by lib.rs main.rs mod.rs"));
    for first in ["src/lib.rs", "main.rs", "src/bin/a.rs", "tests/a.rs", "build.rs", "src/a.py"] {
        assert_eq!(place(first), None, "{first}");
    }
}

#[test]
fn rust_says_of_what_comes_from_another_crate_where_it_comes_from() {
    let signature = |text: &str| {
        Codebase.symbols("src/a.rs", text.as_bytes()).unwrap().pop().unwrap().signature
    };

    assert_eq!(signature("pub use std::io::Error;"), "pub use std::io::Error");
    assert_eq!(
        signature("pub use ::core::fmt::{self, Error as E};"),
        "pub use std::fmt::Error as E"
    );
    for own in ["crate::a::f", "self::a::f", "super::b::f"] {
        assert_eq!(signature(&format!("pub use {own};")), "pub use f");
    }
    for own in ["mod a;", "use crate::x::a;", "pub enum a {}"] {
        assert_eq!(signature(&format!("{own} pub use a::f;")), "pub use f");
    }
}

#[test]
fn cpp_exports_what_classes_and_namespaces_do_not_hide() {
    let text = r#"
namespace shapes::deep {
template <typename T, int N = 3> class Circle : public Shape {
  int own_;
 public:
  explicit Circle(T r = 1) : own_(1) {}
  virtual ~Circle() = default;
  virtual double area() const noexcept = 0;
  static Circle make(const std::vector<T>& all, T&& moved);
  bool operator==(const Circle& other) const;
  operator bool() const;
  enum class Kind { One, Two };
 private:
  void hidden();
};
using Ints = std::vector<int>;
inline constexpr int limit = 10;
template <class T> requires Sized<T> T largest(T a, T b) { return a; }
}
namespace { int secret() { return 1; } }
static int also() { return 1; }
double shapes::deep::Circle<int>::area() const { return 1; }
extern "C" { int plain(int a); }
"#;

    insta::assert_snapshot!(shown("circle.hpp", text));
    assert_eq!(shown("circle.h", text), shown("circle.hpp", text));
}

#[test]
fn ruby_exports_what_is_public() {
    let text = r#"
module Shapes
  LIMIT = 10
  SECRET = 1
  private_constant :SECRET
  class Circle < Shape
    attr_reader :r, :unit
    attr_writer :at
    def initialize(r, unit: 'cm', *rest, &block)
    end
    def area by = 2, **more
      1
    end
    def ==(other) = true
    def self.of(r) = new(r)
    class << self
      def made; end
    end
    def late; end
    private :late
    private def at_once; end
    private
    def own; end
    attr_reader :hidden
    public
    def again?; end
  end
end
def free(a) end
"#;

    insta::assert_snapshot!(shown("shapes.rb", text));
}

#[test]
fn how_a_declaration_is_laid_out_is_no_part_of_its_signature() {
    let same = [
        ("a.rs", "pub fn f<'a>(x:&'a mut u8,y:Vec<Vec<u8>>)->u8 where u8:Ord{1}"),
        (
            "a.rs",
            "pub fn f< 'a >(\n  // Why.\n  x: &'a mut u8,\n  mut y: Vec<Vec<u8> >,\n) -> u8\nwhere\n  u8: Ord,\n{ 2 }",
        ),
        ("a.py", "def f(a, b='x', *, c: int=1) -> int: return 1"),
        ("a.py", "def f(\n  a,  # first\n  b = \"x\",\n  *, c: int = 1,\n) -> int:\n  return 2"),
        ("a.ts", "export function f(a:number,b:'x'|null='x'):void{}"),
        (
            "a.ts",
            "export function f(\n  a: number, /* b */\n  b: \"x\" | null = \"x\",\n): void { return }",
        ),
        ("a.go", "package a\nfunc (t *T[K]) F(a, b int, m map[string]int) (c, d int) { return }"),
        (
            "a.go",
            "package a\nfunc (self *T[K]) F(a int, b int, m map[string] int,) (c /* one */ int, d int) { return }",
        ),
        ("a.go", "package a\nfunc F[K, V any](a func(b, c int), d int) {}"),
        ("a.go", "package a\nfunc F[K any, V any](a func(b int, c int), d int) {}"),
        ("A.java", "public class A { public int f(int a, String... b) { return 1; } }"),
        (
            "A.java",
            "public class A { public int f(final int a, final @N String... b) { return 1; } }",
        ),
        ("a.go", "package a\nfunc F(a, b int, c ...string) (int, error) { return 1, nil }"),
        (
            "a.go",
            "package a\nfunc F(\n\ta, b int, // two\n\tc ...string,\n) (int, error) { return 2, nil }",
        ),
        ("A.java", "public class A { public int f(int a, String b) throws E { return 1; } }"),
        (
            "A.java",
            "public class A {\n @Override public int f(\n int a, @Nullable String b) throws E {\n return 2; } }",
        ),
        ("a.h", "int f(const char *a, int b);"),
        ("a.h", "extern int f(const char* a, // why\n int b) { return 1; }"),
        ("a.hpp", "template<class T> T f(T &a, int b = 1) noexcept;"),
        ("a.hpp", "template <class T>\ninline T f(T& a, int b=1) noexcept { return a; }"),
        ("a.rb", "def f(a, b = 'x', c: 1) = 1"),
        ("a.rb", "def f a, b=\"x\", c: 1\n 2\nend"),
    ];

    let last = |(path, text)| Codebase.symbols(path, str::as_bytes(text)).unwrap().pop().unwrap();
    for pair in same.chunks(2) {
        let (one, other) = (last(pair[0]), last(pair[1]));
        assert_eq!((one.name, one.signature), (other.name, other.signature));
    }
}

#[test]
fn what_whoever_calls_it_relies_on_is_part_of_its_signature() {
    let other = [
        ("a.rs", "pub fn f(a: u8) {}", "pub fn f(a: u16) {}"),
        ("a.rs", "pub fn f<T: Ord>(a: T) {}", "pub fn f<T: Eq>(a: T) {}"),
        ("a.rs", "pub fn f(self: &A) {}", "pub fn f(self: &mut A) {}"),
        ("a.rs", "impl<T: Ord> A<T> { pub fn f() {} }", "impl<T: Eq> A<T> { pub fn f() {} }"),
        ("a.rs", "pub fn f() {}", "pub async fn f() {}"),
        ("a.py", "def f(a, b=1): pass", "def f(a, b=2): pass"),
        ("a.py", "def f(a, b): pass", "def f(a, *, b): pass"),
        ("a.py", "class A:\n def f(self): pass", "class A:\n @property\n def f(self): pass"),
        ("a.py", "f = lambda a: 1", "f = lambda a, b: 1"),
        ("a.go", "package a\nfunc F(a, b int) {}", "package a\nfunc F(a, b int, c int) {}"),
        ("a.go", "package a\nfunc F(a, b int) {}", "package a\nfunc F(a int, b int8) {}"),
        ("a.go", "package a\nfunc (t T) F() {}", "package a\nfunc (t *T) F() {}"),
        (
            "A.java",
            "public class A { public int f() {} }",
            "public class A { public final int f() {} }",
        ),
        ("a.rs", "pub use std::io::Error;", "pub use std::fmt::Error;"),
        ("a.ts", "export function f(a: number) {}", "export function f(a?: number) {}"),
        ("a.ts", "export const f = (a) => 1", "export const f = (a, b) => 1"),
        ("a.js", "export function f(a) {}", "export function f(...a) {}"),
        ("a.go", "package a\nfunc F(a int) {}", "package a\nfunc F(a int) error {}"),
        ("A.java", "public class A { public int f() {} }", "public class A { public long f() {} }"),
        ("a.c", "int f(int a) {}", "int f(int *a) {}"),
        ("a.cc", "int A::f() {}", "int A::f() const {}"),
        ("a.rb", "def f(a) end", "def f(a = 1) end"),
    ];

    for (path, one, two) in other {
        let last = |text: &str| Codebase.symbols(path, text.as_bytes()).unwrap().pop().unwrap();
        let (one, two) = (last(one), last(two));
        assert_eq!(one.name, two.name);
        assert_ne!(one.signature, two.signature);
    }
}

#[test]
fn what_cannot_be_told_is_said() {
    let told = |path: &str, text: &[u8]| Codebase.symbols(path, text).unwrap_err().to_string();
    let deep = format!("{}{}", "mod a {".repeat(100), "}".repeat(100));
    let large = vec![b' '; MAX_BYTES + 1];

    assert_eq!(told("a.zig", b"pub fn f() void {}"), "its language is not known");
    assert_eq!(told("Makefile", b"all:"), "its language is not known");
    assert_eq!(told("a.rs", b"fn f() {}\nfn g( {}\n"), "line 2 is not understood as Rust");
    assert_eq!(told("a.py", b"def f(:\n"), "line 1 is not understood as Python");
    assert_eq!(told("a.h", b"class A { int f( }"), "line 1 is not understood as C");
    assert_eq!(told("a.rs", &[b'f', 0xff]), "it is no text");
    assert_eq!(told("a.rs", b"// \xff\nfn f() {"), "it is no text");
    assert_eq!(told("a.rs", b"fn f() {}\0"), "it is no text");
    assert_eq!(told("a.rs", &large), "it has 524289 bytes, and 524288 are read");
    assert_eq!(told("a.rs", deep.as_bytes()), "it takes too many steps to read");
}

#[test]
fn what_is_made_to_take_long_is_given_up() {
    let fill = |text: &str| text.repeat(MAX_BYTES / 4 / text.len());
    // Each method is told with all that its `impl` says, and each export with all of its class.
    let bounds = "T: Ord + Clone, ".repeat(5_000);
    let methods = "pub fn f() {}".repeat(5_000);
    let members = "f() {} ".repeat(5_000);
    let names = "A as B, ".repeat(5_000);

    for (path, text) in [
        ("a.rs", format!("impl<{bounds}> A {{ {methods} }}")),
        ("a.js", format!("class A {{ {members} }} export {{ {names} }};")),
        ("a.rb", fill("%q(")),
        ("a.c", format!("int a{};", ",a".repeat(2_000))),
        ("a.h", format!("typedef int a{};", ",*a".repeat(2_000))),
        ("a.rs", format!("mod a {{ {methods} }} {}", "pub use a::*; ".repeat(5_000))),
    ] {
        let found = Codebase.symbols(path, text.as_bytes());
        assert_eq!(found, Err(Unreadable::TooIntricate), "{path}");
    }
}

#[test]
fn what_is_made_to_go_deep_overflows_nothing() {
    let fill = |text: &str| text.repeat(MAX_BYTES / 16 / text.len());

    for (path, text) in [
        ("a.rs", "pub fn f("),
        ("a.rs", "impl A<"),
        ("a.py", "("),
        ("a.py", "class A:\n"),
        ("a.js", "f("),
        ("a.rb", "<<A "),
        ("a.cpp", "a<"),
        ("a.cpp", "R\"x("),
        ("a.h", "*a("),
        ("a.java", "@A("),
        ("a.go", "func("),
        ("a.tsx", "<a>"),
        ("a.h", "A B "),
        ("a.h", "A(B "),
        ("a.h", "struct a "),
        ("a.h", "A\n#ifdef B\n"),
        ("a.h", "A int f(B "),
        ("a.hpp", "a<b "),
        ("a.hpp", "namespace a { A class b : c "),
        ("a.h", "#ifdef A\n extern \"C\" {\n#endif\n"),
        ("a.h", "#if A\n{\n#else\n}\n#endif\n"),
        ("a.go", "package a\nfunc F(a int, b func("),
        ("a.py", "del a\n"),
        ("a.rs", "mod a { pub use "),
        ("a.rs", "#[cfg(all("),
    ] {
        let found = Codebase.symbols(path, fill(text).as_bytes());
        assert_ne!(found, Err(Unreadable::UnknownLanguage), "{path}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]

    /// Pieces that grammars know, in any order, reach further into them than bytes do.
    #[test]
    fn no_text_panics_and_symbols_are_in_order_within_it(
        extension in proptest::sample::select(vec![
            "rs", "py", "js", "ts", "tsx", "go", "java", "c", "h", "cpp", "rb",
        ]),
        pieces in proptest::collection::vec(
            proptest::prop_oneof![
                proptest::sample::select(PIECES.to_vec()).prop_map(|it| it.as_bytes().to_vec()),
                proptest::collection::vec(proptest::num::u8::ANY, 0..8),
            ],
            0..40,
        ),
    ) {
        let text = pieces.concat();
        if let Ok(found) = Codebase.symbols(&format!("a.{extension}"), &text) {
            let lines = text.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
            let mut last = 1;
            for symbol in found {
                proptest::prop_assert!(symbol.line >= last && symbol.line <= lines);
                proptest::prop_assert!(!symbol.signature.is_empty());
                last = symbol.line;
            }
        }
    }
}

const PIECES: &[&str] = &[
    "\n",
    " ",
    "{",
    "}",
    "(",
    ")",
    "<",
    ">",
    ";",
    ":",
    ",",
    "=",
    "a",
    "B",
    "\"",
    "'",
    "pub ",
    "fn ",
    "impl ",
    "use ",
    "struct ",
    "enum ",
    "def ",
    "class ",
    "end\n",
    "module ",
    "private\n",
    "export ",
    "default ",
    "function ",
    "const ",
    "package a\n",
    "func ",
    "type ",
    "interface ",
    "public ",
    "template<",
    "namespace ",
    "static ",
    "#define ",
    "::",
    "*",
    "&",
    "[",
    "]",
    "->",
    "=>",
    "@",
    "#",
    "\n    ",
    "self",
    "é",
    "__all__ = ",
    "module.exports = ",
    "async ",
    "operator",
    "API ",
    "ATTR(1)",
    "extern \"C\" {\n",
    "#ifdef A\n",
    "#else\n",
    "#endif\n",
    "#[cfg(any())]",
    "pub use a::*;",
    "mod a {",
    "del a\n",
    "lambda a: 1",
    "...",
    "<<A",
];
