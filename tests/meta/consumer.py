# SPDX-License-Identifier: Apache-2.0
"""Uses hetero the way other projects do.

    consumer.py find_package SOURCE_DIR BUILD_DIR CXX   installs, moves the install, builds and runs a program against it
    consumer.py add_subdirectory SOURCE_DIR BUILD_DIR CXX
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile


def run(*command, expect_failure=False, **options):
    shown = " ".join(str(part) for part in command)
    done = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=300, **options)
    if (done.returncode != 0) != expect_failure:
        print(done.stdout)
        sys.exit(f"{'succeeded' if expect_failure else 'failed'}: {shown}")
    return done.stdout


def configure(source, build, compiler, *definitions, **options):
    # Whatever this machine has set up for the main build (launchers, prefixes) must not help the consumer.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CMAKE_")}
    return run("cmake", "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={compiler}",
               "-DCMAKE_BUILD_TYPE=Debug", *definitions, env=environment, **options)


def build_and_run(source, folder, compiler, *definitions):
    build = folder / "consumer-build"
    configure(source, build, compiler, *definitions)
    run("cmake", "--build", build)
    print(run(build / "consumer").strip())


def absolute_paths(prefix):
    """Lines of the package that name a folder of this machine; such a package breaks when it is moved."""
    pattern = re.compile(r'(?<![\w$}<./*:-])/(?:home|root|tmp|work|build|usr|opt|var|srv|mnt)/[\w.-]+/[^\s"]*')
    return [f"{path.name}:{number}: {line.strip()}" for path in sorted(prefix.rglob("*.cmake"))
            for number, line in enumerate(path.read_text().splitlines(), 1)
            if pattern.search(line) and not line.lstrip().startswith("#")]


def check_install(prefix):
    files = [path for path in prefix.rglob("*") if path.is_file()]
    if not any(path.suffix == ".hpp" for path in files) or not any(path.name == "hetero-config.cmake" for path in files):
        sys.exit(f"the install is incomplete: {len(files)} files")
    if absolute_paths(prefix):
        sys.exit("absolute paths in the package:\n" + "\n".join(absolute_paths(prefix)))
    # Control: a planted path must be found.
    planted = prefix / "planted.cmake"
    planted.write_text('set(somewhere "/home/builder/hetero/include")\n')
    if len(absolute_paths(prefix)) != 1:
        sys.exit("a planted absolute path was not found")
    planted.unlink()
    print(f"{len(files)} files installed, no absolute path among them")


def find_package(source, build, compiler, folder):
    first, moved = folder / "first", folder / "elsewhere" / "moved"
    run("cmake", "--install", build, "--prefix", first)
    check_install(first)
    moved.parent.mkdir()
    shutil.move(first, moved)
    consumer = source / "tests/meta/consumer"
    build_and_run(consumer, folder, compiler, f"-DCMAKE_PREFIX_PATH={moved}")
    # Controls: a component that the package does not have, and a version that it is not.
    said = configure(consumer, folder / "missing", compiler, f"-DCMAKE_PREFIX_PATH={moved}",
                     "-DCONSUMER_COMPONENT=no_such_backend", expect_failure=True)
    if "no_such_backend" not in said:
        sys.exit("a missing component is not named:\n" + said)
    configure(consumer, folder / "version", compiler, f"-DCMAKE_PREFIX_PATH={moved}", "-DCONSUMER_VERSION=99.0",
              expect_failure=True)
    print("a missing component and a wrong version are refused")
    if re.search(r"^MPI_CXX_COMPILER:[^=]*=/", (build / "CMakeCache.txt").read_text(), re.MULTILINE):
        configure(consumer, folder / "mpi", compiler, f"-DCMAKE_PREFIX_PATH={moved}", "-DCONSUMER_COMPONENT=mpi")
        print("the component mpi is found")


def add_subdirectory(source, build, compiler, folder):
    consumer = source / "tests/meta/consumer"
    build_and_run(consumer, folder, compiler, f"-DCONSUMER_SUBDIRECTORY={source}")
    targets = run("cmake", "--build", folder / "consumer-build", "--target", "help")
    for ours in ("demo", "train_gpt", "bench", "test_core_device", "hetero_dev_flags"):
        if re.search(rf"^{ours}:", targets, re.MULTILINE):
            sys.exit(f"as a subdirectory hetero adds the target {ours} to its host")
    cache = (folder / "consumer-build/CMakeCache.txt").read_text()
    if re.search(r"^CMAKE_CXX_COMPILER_LAUNCHER:[^=]*=.+", cache, re.MULTILINE):
        sys.exit("as a subdirectory hetero sets a compiler launcher for its host")
    print("as a subdirectory hetero leaves its host alone")


def main():
    how, source, build, compiler = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4]
    with tempfile.TemporaryDirectory(prefix="hetero-consumer-") as folder:
        {"find_package": find_package, "add_subdirectory": add_subdirectory}[how](
            source, build, compiler, pathlib.Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
