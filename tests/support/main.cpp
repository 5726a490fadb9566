// SPDX-License-Identifier: Apache-2.0
#ifdef HETERO_TEST_OWN_MAIN  // a Catch2 2 that was built without its main library
#define CATCH_CONFIG_RUNNER
#endif
#include "support/catch.hpp"

#ifdef HETERO_TEST_OWN_MAIN
int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }
#endif
