// SPDX-License-Identifier: Apache-2.0

package region_test

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/region"
)

// TestStartFails looks at what is left when the region's process cannot start: nothing runs, and the log is shown.
func TestStartFails(t *testing.T) {
	cache := t.TempDir()
	_, err := region.Start(t.Context(), region.Options{CacheDir: cache, Port: findFreePort(t)}, []string{"/bin/sh", "-c", "echo no luck; exit 3"})
	if err == nil || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("error %v, want the end of the log", err)
	}
	st, err := region.GetStatus(cache)
	if err != nil || st.Running || !st.Exists {
		t.Errorf("status %+v, %v", st, err)
	}
}

// TestPortOfSomebodyElse refuses a port where another program listens, and takes another one afterwards.
func TestPortOfSomebodyElse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
			c.Close()
		}
	}()
	port, _ := strconv.Atoi(ln.Addr().String()[len("127.0.0.1:"):])
	cache := t.TempDir()
	o := region.Options{CacheDir: cache, Port: port}
	if _, err := region.Start(t.Context(), o, []string{"/bin/sleep", "5"}); err == nil || !strings.Contains(err.Error(), "another program listens") {
		t.Errorf("error %v", err)
	}
	if err := region.Stop(t.Context(), cache); err != nil {
		t.Fatal(err)
	}
	o.Port = findFreePort(t)
	if _, err := region.Start(t.Context(), o, []string{"/bin/false"}); err == nil || strings.Contains(err.Error(), "runs on port") {
		t.Errorf("a stopped region does not take another port: %v", err)
	}
	late := time.Minute
	o.VisibilityDelay = &late
	if _, err := region.Start(t.Context(), o, []string{"/bin/false"}); err == nil || !strings.Contains(err.Error(), "visibility delay 1m0s is out of range") {
		t.Errorf("a visibility delay for which nobody waits: %v", err)
	}
	late = 0
	_, _ = region.Start(t.Context(), o, []string{"/bin/false"})
	o.VisibilityDelay = nil
	_, _ = region.Start(t.Context(), o, []string{"/bin/false"})
	st, err := region.GetStatus(cache)
	if err != nil || st.Settings.VisibilityDelay == nil || *st.Settings.VisibilityDelay != 0 {
		t.Errorf("the visibility delay is not kept: %+v, %v", st.Settings.VisibilityDelay, err)
	}
	if err != nil || !strings.HasSuffix(st.Endpoint, ":"+strconv.Itoa(o.Port)) {
		t.Errorf("status %+v, %v", st, err)
	}
}

// TestPortOfKilledProcess: the port of a region's process that was killed is in use for a moment.
func TestPortOfKilledProcess(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port, _ := strconv.Atoi(busy.Addr().String()[len("127.0.0.1:"):])
	time.AfterFunc(300*time.Millisecond, func() { busy.Close() })
	_, err = region.Start(t.Context(), region.Options{CacheDir: t.TempDir(), Port: port}, []string{"/bin/sh", "-c", "echo tried to listen; exit 3"})
	if err == nil || !strings.Contains(err.Error(), "tried to listen") {
		t.Errorf("error %v", err)
	}
}

// TestPortsThatCannotBe: each is refused before a process is started and before the port is recorded.
func TestPortsThatCannotBe(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0") // it speaks no HTTP
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	used, _ := strconv.Atoi(busy.Addr().String()[len("127.0.0.1:"):])
	for port, want := range map[int]string{
		-5: "port -5 does not exist: give --port", 70000: "port 70000 does not exist: give --port",
		used: "another program listens at 127.0.0.1:" + strconv.Itoa(used) + ": stop it, or start the region with another --port",
	} {
		_, err := region.Start(t.Context(), region.Options{CacheDir: t.TempDir(), Port: port}, []string{"/bin/false"})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("port %d: %v", port, err)
		}
	}
}

// TestEnv has the AWS CLI's own name for the region next to the SDKs'.
func TestEnv(t *testing.T) {
	s := region.Settings{Region: "us-east-1", Account: "000000000000", Port: 4666, AccessKey: "AKIA", SecretKey: "s"}
	got := map[string]string{}
	for _, kv := range s.Env("/c") {
		got[kv[0]] = kv[1]
	}
	for name, want := range map[string]string{
		"AWS_ENDPOINT_URL": "http://127.0.0.1:4666", "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1",
		"SLIPWAY_ASSETS": "/c/assets/catalog.yaml", "SLIPWAY_STATE_OWNER": "000000000000",
	} {
		if got[name] != want {
			t.Errorf("%s = %q, want %q", name, got[name], want)
		}
	}
}

func findFreePort(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	port, err := strconv.Atoi(ln.Addr().String()[len("127.0.0.1:"):])
	if err != nil {
		t.Fatal(err)
	}
	return port
}
