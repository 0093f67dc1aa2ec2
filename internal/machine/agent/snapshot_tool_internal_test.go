// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"os/exec"
	"testing"
)

// TestHostFailures: an etcdutl that was killed, did not start or had no space left says nothing of a backup. Its test condemned
// the backup for good. So did one on a disk that had become read-only, one without file descriptors, and one whose program was missing.
func TestHostFailures(t *testing.T) {
	shell := func(script string) error {
		_, err := execRunner{}.Run(t.Context(), "sh", "-c", script)
		return err
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, cancelled := execRunner{}.Run(ended, "sh", "-c", "sleep 1")
	_, missing := execRunner{}.Run(t.Context(), "/no/such/program")
	_, notStarted := snapshotTool{run: execRunner{}, program: "/no/such/etcdutl"}.etcdutl(t.Context())
	_, notExecutable := execRunner{}.Run(t.Context(), "env", "nice", "-n", "10", "/dev/null")
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"killed":                             {shell("kill -9 $$"), true},
		"cancelled":                          {cancelled, true},
		"not there":                          {missing, true},
		"a full disk":                        {shell("echo 'write member/snap/db: no space left on device' >&2; exit 1"), true},
		"a broken disk":                      {shell("echo 'read snapshot.db: input/output error' >&2; exit 1"), true},
		"no memory":                          {shell("echo 'fatal error: runtime: out of memory' >&2; exit 2"), true},
		"not there for nice":                 {notStarted, true},
		"not executable for nice":            {notExecutable, true},
		"a read-only disk":                   {shell("echo 'open data/member/snap/db: read-only file system' >&2; exit 1"), true},
		"no file descriptors":                {shell("echo 'open snapshot.db: too many open files' >&2; exit 1"), true},
		"no file descriptors on the machine": {shell("echo 'open snapshot.db: too many open files in system' >&2; exit 1"), true},
		"no permission":                      {shell("echo 'open snapshot.db: permission denied' >&2; exit 1"), true},
		"no thread":                          {shell("echo 'runtime: failed to create new OS thread (have 7 already; errno=11)' >&2; exit 2"), true},
		"a socket in use":                    {shell("echo 'listen unix client: bind: address already in use' >&2; exit 1"), true},
		"a wrong checksum of a page":         {shell("echo 'panic: page 7 already freed' >&2; exit 2"), false},
		"a wrong hash":                       {shell("echo 'expected sha256 [1], got [2]' >&2; exit 1"), false},
		"a panic of bolt":                    {shell("echo 'panic: invalid freelist page' >&2; exit 2"), false},
	} {
		if got := isHostFailure(c.err); got != c.want || c.err == nil {
			t.Errorf("%s: %v, want %v: %v", name, got, c.want, c.err)
		}
	}
	if _, ok := errors.AsType[*exec.ExitError](shell("exit 1")); !ok {
		t.Error("the error of a program is not found in that of the runner")
	}
}
