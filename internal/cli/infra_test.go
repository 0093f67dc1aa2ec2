// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestInfra runs the scripts that need AWS, each against a region of its own in records mode.
func TestInfra(t *testing.T) {
	agent, err := exec.LookPath("true") // a small program of this machine stands for the agent: nothing runs it
	if err != nil {
		t.Skip("SKIPPED: no program to stand for the agent")
	}
	params := testscript.Params{
		Dir:                 "testdata/infra",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			r := regiontest.Start(t)
			for _, k := range slices.Sorted(maps.Keys(r.Env())) {
				env.Setenv(k, r.Env()[k])
			}
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("SLIPWAY_STATE", "s3://slipway-test")
			env.Setenv("SLIPWAY_NODE_BINARY", agent)
			p := newProxy(t, r.URL)
			env.Setenv("AWS_ENDPOINT_URL", p.URL)
			env.Values["region"], env.Values["proxy"], env.Values["fleet"] = r, p, &fleet{}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"unchanged": unchanged, "unmade": unmade, "hold": cmdHold, "held": cmdHeld, "sleep": cmdSleep, "until": cmdUntil, "leave": leave, "signals": signals,
			"tamper": cmdTamper, "fits": cmdFits, "healthfits": cmdHealthFits, "objects": cmdObjects, "putobject": cmdPutObject, "putabsent": cmdPutAbsent, "elsewhere": cmdElsewhere, "copystate": cmdCopyState, "function": cmdFunction, "records": cmdRecords, "unfunctioned": cmdUnfunctioned, "unmark": cmdUnmark,
			"mirror": mirrorAssets, "registry": cmdRegistry, "ecr": cmdECR(t), "ecrhas": cmdECRHas(t),
		},
	}
	if testing.Short() { // the ones that run several processes at once; the full form runs all
		params.Dir = ""
		params.Files = []string{"testdata/infra/life.txtar", "testdata/infra/lock.txtar", "testdata/infra/stack.txtar"}
	}
	testscript.Run(t, params)
}

// unchanged runs a command and fails if it made a call that changes something.
func unchanged(ts *testscript.TestScript, neg bool, args []string) {
	within(ts, neg, args, func(string) bool { return true })
}

// unmade lets a command write to the state store: an operation that is refused leaves its record.
func unmade(ts *testscript.TestScript, neg bool, args []string) {
	within(ts, neg, args, func(call string) bool { return !strings.HasPrefix(call, "s3:") })
}

func within(ts *testscript.TestScript, neg bool, args []string, counts func(string) bool) {
	r, ok := ts.Value("region").(regiontest.Region)
	if !ok {
		ts.Fatalf("no region")
	}
	before := mutations(r, counts)
	err := ts.Exec(args[0], args[1:]...)
	if (err != nil) != neg {
		ts.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	if after := mutations(r, counts); after != before {
		ts.Fatalf("%s made %d calls that change something", strings.Join(args, " "), after-before)
	}
}

func mutations(r regiontest.Region, counts func(string) bool) int {
	n := 0
	for call, times := range r.CallCounts() {
		_, op, _ := strings.Cut(call, ":")
		if counts(call) && !slices.ContainsFunc([]string{"Describe", "List", "Get", "Head", "Decrypt"}, func(p string) bool { return strings.HasPrefix(op, p) }) {
			n += times
		}
	}
	return n
}
