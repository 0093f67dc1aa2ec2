// SPDX-License-Identifier: Apache-2.0

package join_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/machine/join"
)

// TestSignalsArePassedOn: a worker signals for itself, and is told why the control plane does not pass it on.
func TestSignalsArePassedOn(t *testing.T) {
	w := newWorld(t)
	if err := w.client().SendSignal(t.Context(), join.SignalSuccess); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("without a stack: %v", err)
	}

	var passed []string
	var answer error
	w.server.PassSignal = func(_ context.Context, m join.Machine, s join.Signal) error {
		passed = append(passed, m.ID+" "+string(s))
		return answer
	}
	for _, status := range []join.Signal{join.SignalSuccess, join.SignalFailure} {
		if err := w.client().SendSignal(t.Context(), status); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Join(passed, ", "); got != instance+" SUCCESS, "+instance+" FAILURE" {
		t.Errorf("passed %s", got)
	}

	answer = join.Refuse("node x is not Ready")
	if err := w.client().SendSignal(t.Context(), join.SignalSuccess); err == nil || !strings.Contains(err.Error(), "409 Conflict: node x is not Ready") {
		t.Errorf("a refusal: %v", err)
	}
	answer = errors.New("secret of the control plane")
	if err := w.client().SendSignal(t.Context(), join.SignalSuccess); err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "503") {
		t.Errorf("an error: %v", err)
	}
}

// TestSignalsOfOthers: nobody signals for another machine, with another machine's proof of something else, or as a
// machine that is not a live worker of this cluster.
func TestSignalsOfOthers(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"a terminated machine":      func(w *world) { w.machine.State = "terminated" },
		"a control-plane machine":   func(w *world) { w.machine.Role = "control-plane" },
		"another cluster's machine": func(w *world) { w.machine.ScalingGroup = "nodes.demo-2" },
		"another account":           func(w *world) { w.machine.Account = "210987654321" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.server.PassSignal = func(context.Context, join.Machine, join.Signal) error { t.Error("passed on"); return nil }
			change(w)
			if err := w.client().SendSignal(t.Context(), join.SignalSuccess); err == nil || !strings.Contains(err.Error(), "403") {
				t.Errorf("got %v", err)
			}
		})
	}

	w := newWorld(t)
	w.server.PassSignal = func(context.Context, join.Machine, join.Signal) error { t.Error("passed on"); return nil }
	csr := newCSR(t)
	for what, bound := range map[string]string{"a certificate request": csr, "a failure": "slipway-signal FAILURE", "nothing": ""} {
		proof, err := w.signer().CreateProof(t.Context(), []byte(bound))
		if err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(map[string]string{"status": "SUCCESS", "proof": proof})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Post(w.url+"/v1/signal", "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("the proof of %s: %d %s", what, resp.StatusCode, text)
		}
	}

	proof, err := w.signer().CreateProof(t.Context(), []byte("slipway-signal SUCCESS"))
	if err != nil {
		t.Fatal(err)
	}
	if code, text := w.post(t, csr, proof); code != http.StatusForbidden {
		t.Errorf("the proof of a signal gets a certificate: %d %s", code, text)
	}
}
