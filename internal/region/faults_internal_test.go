// SPDX-License-Identifier: Apache-2.0

package region

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
)

// TestKillPeer lets a process of its own call a server that kills it. The process is this test in another role.
func TestKillPeer(t *testing.T) {
	const role = "SLIPWAY_TEST_CALL"
	if url := os.Getenv(role); url != "" {
		resp, err := http.Get(url)
		if err == nil {
			resp.Body.Close()
		}
		os.Exit(7) // it lives
	}
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: the region runs on Linux only")
	}
	killed := make(chan error, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { killed <- killPeer(r) }))
	defer srv.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKillPeer$")
	cmd.Env = append(cmd.Environ(), role+"="+srv.URL)
	err := cmd.Run()
	if e := <-killed; e != nil {
		t.Fatal(e)
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatalf("the caller ended well: %v", err)
	}
	if st, ok := exit.Sys().(syscall.WaitStatus); !ok || st.Signal() != syscall.SIGKILL {
		t.Errorf("the caller ended by %v, not by SIGKILL", err)
	}
	// A call from this very process kills nobody.
	resp, err := http.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if err := <-killed; err == nil {
		t.Error("the region would have killed itself")
	}
}
