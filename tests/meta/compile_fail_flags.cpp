// SPDX-License-Identifier: Apache-2.0
// Never built: its target carries the include folders that compile-fail tests pass to the compiler.
