// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/slipway-k8s/slipway/internal/machine/addon/apitest"
)

// TestAddonScripts runs the scripts that need a Kubernetes API, with a real API server that has no controllers.
func TestAddonScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	server := apitest.Start(t)
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/addons",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("EXAMPLES", examples)
			env.Setenv("API", server.Kubeconfig)
			env.Setenv("SLIPWAY_STATE", "file://"+env.WorkDir+"/state")
			env.Setenv("SLIPWAY_STATE_KEY", env.WorkDir+"/state.key")
			env.Setenv("AWS_EC2_METADATA_DISABLED", "true")

			return nil
		},
	})
}
