// SPDX-License-Identifier: Apache-2.0

package services_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestEmptyBodiesAreInvited: a client that asks to be invited to send its body is invited also if the body is empty, as
// S3 does. boto3 otherwise never reads the answers to its later requests on the connection.
func TestEmptyBodiesAreInvited(t *testing.T) {
	t.Parallel()
	address := strings.TrimPrefix(regiontest.Start(t).URL, "http://")
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}

	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}

	fmt.Fprintf(conn, "PUT /b-1/empty HTTP/1.1\r\nHost: %s\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n", address)
	answer := bufio.NewReader(conn)
	for _, want := range []string{"HTTP/1.1 100 Continue\r\n", "\r\n", "HTTP/1.1 403 Forbidden\r\n"} {
		if line, err := answer.ReadString('\n'); err != nil || line != want {
			t.Errorf("got %q, %v, want %q", line, err, want)
		}
	}
}
