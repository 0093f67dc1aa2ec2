# To be sourced by scripts: tests, linters and packages compile with the flags of the released programs, so that all of them
# use the same compiled packages. Otherwise a cold machine compiles two thousand packages twice.
export CGO_ENABLED=0
[[ ${GOFLAGS:-} == *-trimpath* ]] || export GOFLAGS="${GOFLAGS:-} -trimpath"
# Compilers and tests run for seconds on machines with memory to spare: they collect garbage less often.
export GOGC="${GOGC:-400}"
