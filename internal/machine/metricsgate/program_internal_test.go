// SPDX-License-Identifier: Apache-2.0

package metricsgate

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestSettings: the program refuses arguments with which it would be useless or unsafe.
func TestSettings(t *testing.T) {
	good := []string{"--listen=127.0.0.1:0", "--audience=a", "--source=etcd=http://127.0.0.1:2381/metrics", "--source=x=http://127.0.0.1:1/"}
	s, err := parseSettings(good, io.Discard)
	if err != nil || len(s.sources) != 2 || s.sources["etcd"].URL != "http://127.0.0.1:2381/metrics" {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range [][]string{nil, good[:2], good[1:], {good[0], good[2]}, append(good[:4:4], "more"), append(good[:4:4], "--source=y=http://10.0.0.1/")} {
		if _, err := parseSettings(bad, io.Discard); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// TestOutsideOfAPod: the program says why it does not start.
func TestOutsideOfAPod(t *testing.T) {
	args := []string{"--listen=127.0.0.1:0", "--audience=a", "--source=etcd=http://127.0.0.1:2381/metrics"}
	env := Env{Stderr: io.Discard, Getenv: func(string) string { return "" }, Now: time.Now}
	if err := Main(t.Context(), args, env); err == nil || !strings.Contains(err.Error(), "in a pod") {
		t.Error(err)
	}
}

// TestServe: the gate speaks TLS 1.3 only, and ends with its context.
func TestServe(t *testing.T) {
	certificate, err := newCertificate(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, &Gate{}, listener, certificate) }()
	for version, ok := range map[uint16]bool{tls.VersionTLS12: false, tls.VersionTLS13: true} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, MaxVersion: version}}}
		answer, err := client.Get("https://" + listener.Addr().String() + "/healthz")
		if (err == nil) != ok {
			t.Errorf("TLS %x: %v", version, err)
		}
		if err == nil {
			answer.Body.Close()
		}
	}
	stop()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("no error")
		}
	case <-time.After(10 * time.Second):
		t.Error("it does not end")
	}
}
