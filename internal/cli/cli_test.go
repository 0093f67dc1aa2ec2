// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/slipway-k8s/slipway/internal/cli"
	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
)

var update = flag.Bool("update", false, "rewrite the scripts' expected output and docs/cli")

// TestMain makes the scripts' command slipway of this very binary.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"slipway": func() {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		os.Exit(cli.Main(ctx, cli.Env{
			Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
			Getenv: os.Getenv, Environ: os.Environ, Now: time.Now, Hostname: os.Hostname, Registries: registries(),
		}))
	}})
}

func TestScripts(t *testing.T) {
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"plainly": plainly, "silent": silent, "mirror": mirrorAssets},
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("EXAMPLES", examples)
			env.Setenv("SLIPWAY_STATE", "file://"+env.WorkDir+"/state")
			env.Setenv("SLIPWAY_STATE_KEY", env.WorkDir+"/state.key")
			env.Setenv("AWS_EC2_METADATA_DISABLED", "true")
			return nil
		},
	})
}

// TestHelpIsWhole: every command says what it does, by example, and its exit codes.
func TestHelpIsWhole(t *testing.T) {
	for _, cmd := range leaves(cli.Root(cli.Env{})) {
		path := cmd.CommandPath()
		if strings.Contains(path, " help") {
			continue // cobra's own
		}
		if cmd.Short == "" || cmd.Long == "" || cmd.Example == "" {
			t.Errorf("%s lacks a part of its help", path)
		}
		if !strings.Contains(cmd.Long, "EXIT STATUS") {
			t.Errorf("%s does not say its exit codes", path)
		}
	}
}

// registries stands for the registries of images, unless a script says that there is no network.
func registries() http.RoundTripper {
	if os.Getenv("TEST_REGISTRIES") == "unreachable" {
		return unreachable{}
	}
	return assettest.Registries{}
}

// unreachable is a network that reaches no host.
type unreachable struct{}

func (unreachable) RoundTrip(req *http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("lookup %s: no such host", req.URL.Host)
}
