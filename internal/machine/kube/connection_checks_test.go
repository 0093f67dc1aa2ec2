// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// silentProxy forwards connections to a server until it is told to say nothing more, as a machine that has ended.
type silentProxy struct {
	net.Listener
	server string
	silent atomic.Bool
}

func (p *silentProxy) serve() {
	for {
		client, err := p.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			return
		}
		go p.forward(server, client)
		go p.forward(client, server)
	}
}

func (p *silentProxy) forward(to io.Writer, from io.Reader) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if !p.silent.Load() {
			_, _ = to.Write(buffer[:n])
		}
	}
}

// TestConnectionChecks: the kubelet has the variables, and client-go leaves a connection to a dead API server after the times that
// they set.
func TestConnectionChecks(t *testing.T) {
	unit := kube.KubeletUnit(config())
	for name, value := range kube.ConnectionChecks() {
		if !strings.Contains(unit, "\nEnvironment="+name+"="+value+"\n") {
			t.Errorf("the kubelet's unit does not set %s=%s:\n%s", name, value, unit)
		}
		t.Setenv(name, "1") // not to wait for long
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush() // a watch without events
		<-r.Context().Done()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections() // of which the proxy tells nothing any more
		server.Close()
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	proxy := &silentProxy{Listener: listener, server: server.Listener.Addr().String()}
	t.Cleanup(func() { _ = listener.Close() })
	go proxy.serve()

	transport := utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the address is the proxy's
	})
	t.Cleanup(transport.CloseIdleConnections)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+listener.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	watch, err := transport.RoundTrip(request)
	if err != nil || watch.ProtoMajor != 2 {
		t.Fatalf("%+v, %v", watch, err)
	}
	defer func() { _ = watch.Body.Close() }()
	proxy.silent.Store(true)
	ended := make(chan error, 1)
	go func() {
		_, err := watch.Body.Read(make([]byte, 1))
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the watch had an event")
		}
	case <-time.After(20 * time.Second): // less than the 45 s that client-go waits by default
		t.Error("the watch still waits for a dead server")
	}
}
