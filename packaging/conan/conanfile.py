# SPDX-License-Identifier: Apache-2.0
# conan create packaging/conan
import os

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy


class Hetero(ConanFile):
    name = "hetero"
    version = "0.1.0"
    license = "Apache-2.0"
    description = "Trains one model on unequal devices, exactly"
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps"
    no_copy_source = True

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..", "..")
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*"):
            copy(self, pattern, root, self.export_sources_folder)

    def requirements(self):
        self.requires("boost/[>=1.74 <2]", options={"header_only": True})
        self.requires("fmt/[>=9 <12]")
        self.requires("nlohmann_json/[>=3.11 <4]")
        self.requires("openblas/[>=0.3.20 <1]")

    def validate(self):
        check_min_cppstd(self, 20)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for option in ("TESTS", "EXAMPLES", "BENCHMARKS"):
            toolchain.cache_variables[f"HETERO_{option}"] = False
        toolchain.generate()

    def package(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.install()

    def package_id(self):
        self.info.clear()

    def package_info(self):
        # The package's own configuration file is used: the same names as without Conan.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "hetero")]
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
