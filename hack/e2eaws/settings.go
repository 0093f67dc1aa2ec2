// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// The environment variables of a run.
const (
	variableAccount   = "SLIPWAY_E2E_ACCOUNT"
	variableRegion    = "SLIPWAY_E2E_REGION"
	variableTimeout   = "SLIPWAY_E2E_TIMEOUT"
	variableMachines  = "SLIPWAY_E2E_MACHINES"
	variableTopology  = "SLIPWAY_E2E_TOPOLOGY"
	variableZones     = "SLIPWAY_E2E_ZONES"
	variableAccess    = "SLIPWAY_E2E_API_ACCESS"
	variableDirectory = "SLIPWAY_E2E_DIR"
)

const (
	defaultTimeout = 45 * time.Minute
	// deletionLimit is the most that the deletion and the sweep take, after the time limit of the steps. AWS needs about
	// ten minutes for them.
	deletionLimit = 30 * time.Minute
)

// The topologies of the cluster.
const (
	topologyHA     = "ha"     // three control-plane machines and two workers over three zones
	topologySingle = "single" // one of each in one zone
)

// settings are what the environment and the flags set.
type settings struct {
	account   string        // the id of the only account that the run may use
	region    string        // the region of the cluster
	timeout   time.Duration // of all steps before the deletion
	machines  bool          // whether machines boot; false for a region without machines
	topology  string        // topologyHA or topologySingle
	zones     []string      // empty: the first zones of the region
	apiAccess string        // CIDR ranges that reach the Kubernetes API; empty: as in 'slipway create cluster'
	directory string        // the parent of the directories of the runs
	program   string        // the path of slipway
	sweep     string        // the id of a run to sweep; empty: make a new run
}

// readSettings returns the settings of the process, or all that is wrong with them.
func readSettings(p process) (settings, error) {
	s := settings{
		account:   p.getenv(variableAccount),
		region:    p.getenv(variableRegion),
		machines:  p.getenv(variableMachines) != "no",
		topology:  cmp.Or(p.getenv(variableTopology), topologyHA),
		apiAccess: p.getenv(variableAccess),
		directory: p.getenv(variableDirectory),
	}

	flags := flag.NewFlagSet("e2eaws", flag.ContinueOnError)
	flags.SetOutput(p.stderr)
	flags.StringVar(&s.program, "program", "bin/slipway", "path of slipway")
	flags.StringVar(&s.sweep, "sweep", "", "id of a run that was killed: delete what is left of it, and run nothing")
	if err := flags.Parse(p.args); err != nil {
		return s, fmt.Errorf("read the flags: %w", err)
	}

	if zones := p.getenv(variableZones); zones != "" {
		s.zones = strings.Split(zones, ",")
	}

	var found diag.Findings
	s.timeout = parseTimeout(&found, p.getenv(variableTimeout))
	s.checkValues(&found, p.getenv(variableMachines))
	if err := found.Err(); err != nil {
		return s, err
	}

	return s.resolvePaths(p)
}

// parseTimeout returns the time limit of the steps.
func parseTimeout(found *diag.Findings, text string) time.Duration {
	if text == "" {
		return defaultTimeout
	}

	limit, err := time.ParseDuration(text)
	if err != nil || limit <= 0 {
		found.Errorf(variableTimeout, text, "set a time such as 45m", "is not a valid time limit")
	}

	return limit
}

// checkValues adds what is wrong with the settings.
func (s settings) checkValues(found *diag.Findings, machines string) {
	if !regexp.MustCompile(`^\d{12}$`).MatchString(s.account) {
		found.Errorf(variableAccount, s.account,
			"set it to the id of an AWS account in which clusters may be created and deleted",
			"is not an account id of 12 digits")
	}

	if s.region == "" {
		found.Errorf(variableRegion, "", "set it to a region, such as us-east-1", "is not set")
	}

	if !slices.Contains([]string{"", "yes", "no"}, machines) {
		found.Errorf(variableMachines, machines, "set no for a region without machines", "is neither yes nor no")
	}

	if !slices.Contains([]string{topologyHA, topologySingle}, s.topology) {
		found.Errorf(variableTopology, s.topology, "set ha or single", "is not a topology of this test")
	}

	if s.sweep != "" && !runID(s.sweep).isValid() {
		found.Errorf("SWEEP", s.sweep, "copy the id from the output of the run, such as e2e-1126-0704-3fa9",
			"is not the id of a run")
	}
}

// resolvePaths returns the settings with absolute paths. The program must exist.
func (s settings) resolvePaths(p process) (settings, error) {
	if s.directory == "" {
		cache := cmp.Or(p.getenv("XDG_CACHE_HOME"), filepath.Join(p.getenv("HOME"), ".cache"))
		s.directory = filepath.Join(cmp.Or(p.getenv("SLIPWAY_CACHE"), filepath.Join(cache, "slipway")), "e2e-aws")
	}

	for _, path := range []*string{&s.directory, &s.program} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return s, fmt.Errorf("find the path of %s: %w", *path, err)
		}

		*path = absolute
	}

	if _, err := os.Stat(s.program); err != nil {
		return s, diag.WithHint(fmt.Errorf("find the program: %w", err), "build it: make build")
	}

	return s, nil
}

// zoneCount is the number of zones that the topology needs.
func (s settings) zoneCount() int {
	if s.topology == topologySingle {
		return 1
	}

	return 3
}

// topologyFlags returns the flags of 'slipway create cluster' for the topology.
func (s settings) topologyFlags(zones []string) []string {
	flags := []string{"--zones", strings.Join(zones, ",")}
	if s.topology == topologySingle {
		flags = append(flags, "--control-plane-count", "1", "--worker-count", "1", "--nat-gateways", "Single")
	}

	if s.apiAccess != "" {
		flags = append(flags, "--api-access", s.apiAccess)
	}

	return flags
}
