import compile_commands

GCC = [
    "/usr/bin/gcc", "-fno-canonical-system-headers", "-std=c++20", "-MD", "-MF", "bazel-out/x.d",
    "-iquote", "external/googletest", "-iquote", "bazel-out/k8/bin", "-Iexternal/other",
    "-ffp-contract=off", '-D__DATE__="redacted"', "-c", "kernels/select.cc", "-o", "bazel-out/x.o",
]  # fmt: skip


def test_flags_of_gcc_and_outputs_are_dropped_and_paths_absolute():
    assert compile_commands.clean(GCC, "/base", "/exec") == [
        "clang++", "-std=c++20", "-iquote", "/base/external/googletest", "-iquote",
        "/exec/bazel-out/k8/bin", "-I/base/external/other", "-ffp-contract=off", "-c",
        "kernels/select.cc", "-DBOOST_ASIO_HAS_CO_AWAIT", "-Wno-unknown-warning-option",
    ]  # fmt: skip


def test_only_our_own_sources_are_listed_once():
    def action(source):
        return {"arguments": ["gcc", "-c", source, "-o", "x.o"]}

    sources = ["kernels/b.cc", "external/g/g.cc", "bazel-out/k8/gen.cc", "kernels/a.cc"]
    aquery = {"actions": [action(source) for source in [*sources, "kernels/b.cc"]]}
    found = compile_commands.entries(aquery, "/base", "/exec")
    assert [entry["file"] for entry in found] == ["kernels/a.cc", "kernels/b.cc"]
