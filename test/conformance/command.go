// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// Programs are the programs of the conformance tests in the results of a build.
type Programs struct {
	// Tests is e2e.test, the tests.
	Tests string
	// Runner is ginkgo, which runs the tests in several processes.
	Runner string
	// Kubectl is a kubectl of the same version, which some tests call.
	Kubectl string
}

// Selection says which specs run. A spec must meet all conditions.
type Selection struct {
	// Suite is the suite of the specs. Required.
	Suite Suite
	// Focus is a regular expression that the name of a spec matches; if empty, all names do.
	Focus string
	// Only are the names of the specs; if empty, all specs. It replaces Focus.
	Only []string
	// Exceptions are the specs that do not run.
	Exceptions []Exception
}

// Run is one run of the tests against a cluster.
type Run struct {
	Programs

	// Kubeconfig is the file with an administrator's access to the cluster.
	Kubeconfig string
	// Directory gets the reports.
	Directory string
	// Report is the name of the report in Directory.
	Report string
	// Processes is the number of specs that run at the same time. Serial specs run alone, after the others.
	Processes int
	// Timeout is the limit of the whole run, after which the running specs fail.
	Timeout time.Duration
}

// RunArguments returns the arguments of the runner.
func RunArguments(r Run, s Selection) []string {
	args := []string{
		"run",
		"--no-color",
		"--procs=" + strconv.Itoa(r.Processes),
		"--timeout=" + r.Timeout.String(),
		"--label-filter=" + s.Suite.labelFilter(),
		"--output-dir=" + r.Directory,
		"--json-report=" + r.Report,
	}

	for _, name := range s.Only {
		args = append(args, "--focus="+matchName(name))
	}

	if len(s.Only) == 0 && s.Focus != "" {
		args = append(args, "--focus="+s.Focus)
	}

	for _, e := range s.Exceptions {
		args = append(args, "--skip="+matchName(e.Spec))
	}

	return append(
		args,
		r.Tests,
		"--",
		"--provider=skeleton",
		"--kubeconfig="+r.Kubeconfig,
		"--kubectl-path="+r.Kubectl,
		"--e2e-output-dir="+filepath.Join(r.Directory, "output"),
		"--dump-logs-on-failure=false",
		"--disable-log-dump",
	)
}

// ListArguments returns the arguments of the tests' program itself, which make it write a report of all specs to a file
// without running any.
func ListArguments(report string, s Selection) []string {
	args := []string{
		"-ginkgo.dry-run",
		"-ginkgo.no-color",
		"-ginkgo.label-filter=" + s.Suite.labelFilter(),
		"-ginkgo.json-report=" + report,
	}

	if s.Focus != "" {
		args = append(args, "-ginkgo.focus="+s.Focus)
	}

	for _, e := range s.Exceptions {
		args = append(args, "-ginkgo.skip="+matchName(e.Spec))
	}

	return args
}

// matchName returns a regular expression for the spec with a name. Ginkgo puts the name of the suite before it.
func matchName(name string) string { return regexp.QuoteMeta(name) + "$" }
