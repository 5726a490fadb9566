# SPDX-License-Identifier: Apache-2.0
# An overlay port that installs the checkout it lies in: vcpkg install hetero --overlay-ports=packaging/vcpkg/ports
set(VCPKG_BUILD_TYPE release)  # headers only
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)

vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DHETERO_TESTS=OFF -DHETERO_EXAMPLES=OFF -DHETERO_BENCHMARKS=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME hetero CONFIG_PATH share/cmake/hetero)
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
