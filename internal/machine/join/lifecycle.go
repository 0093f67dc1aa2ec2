// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// lifecyclePath is the URL path of lifecycle actions.
const lifecyclePath = "/v1/lifecycle"

// LifecycleKind is what a worker asks for.
type LifecycleKind string

// The kinds of lifecycle actions.
const (
	// LifecycleComplete lets Auto Scaling continue with the machine. Nobody can have a launch abandoned.
	LifecycleComplete LifecycleKind = "COMPLETE"
	// LifecycleHeartbeat makes Auto Scaling wait for another heartbeat timeout.
	LifecycleHeartbeat LifecycleKind = "HEARTBEAT"
)

// LifecycleAction is what a worker has the control plane tell Auto Scaling, which waits for this worker. So the role of a
// worker, which other machines share, needs no right to do that: IAM cannot limit such a right to one machine.
type LifecycleAction struct {
	// Hook is the name of the lifecycle hook.
	Hook string
	// Kind is what the worker asks for.
	Kind LifecycleKind
}

// boundText is what the proof of an action is bound to. No certificate request and no signal looks like it.
func (a LifecycleAction) boundText() string {
	return "slipway-lifecycle " + string(a.Kind) + " " + a.Hook
}

// isKnown reports whether workers may ask for the action.
func (a LifecycleAction) isKnown() bool {
	return slices.Contains([]string{node.TerminationHook, node.LaunchHook}, a.Hook) &&
		slices.Contains([]LifecycleKind{LifecycleComplete, LifecycleHeartbeat}, a.Kind)
}

type lifecycleRequest struct {
	Hook string        `json:"hook"`
	Kind LifecycleKind `json:"kind"`
	// Proof is the query string of a signed GetCallerIdentity request that is bound to hook and kind, see Signer.
	Proof string `json:"proof"`
}

type lifecycleAnswer struct {
	// Waited reports whether Auto Scaling waited for the machine.
	Waited bool `json:"waited"`
}

func (s *Server) serveLifecycle(w http.ResponseWriter, r *http.Request) {
	waited, err := s.actForMachine(w, r)
	if err == nil {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(lifecycleAnswer{waited}) // a worker that receives a partial response retries

		return
	}

	s.refuse(w, r, "lifecycle action", err)
}

// actForMachine checks who asks, and does what is asked for that machine.
func (s *Server) actForMachine(w http.ResponseWriter, r *http.Request) (waited bool, err error) {
	var req lifecycleRequest
	err = decodeRequest(http.MaxBytesReader(w, r.Body, 32<<10), &req)
	action := LifecycleAction{Hook: req.Hook, Kind: req.Kind}
	if err != nil || !action.isKnown() {
		return false, refusal{http.StatusBadRequest, "body is not a JSON lifecycle action"}
	}

	// The drains of many workers at once must not keep others from joining.
	machine, err := s.findProvedMachine(
		r.Context(),
		provedRequest{from: newRequestCaller(r, s.Now()), text: action.boundText(), proof: req.Proof},
		&s.actions,
	)
	if err != nil {
		return false, err
	}

	return s.ActForMachine(r.Context(), machine, action)
}

// SendLifecycle asks the control plane for a lifecycle action for this machine. It reports whether Auto Scaling waited
// for the machine.
func (c Client) SendLifecycle(ctx context.Context, action LifecycleAction) (waited bool, err error) {
	proof, err := c.Sign.CreateProof(ctx, []byte(action.boundText()))
	if err != nil {
		return false, err
	}

	request := lifecycleRequest{Hook: action.Hook, Kind: action.Kind, Proof: proof}
	text, err := c.post(ctx, lifecyclePath, "tell Auto Scaling", request, http.StatusOK)
	if err != nil {
		return false, err
	}

	var answer lifecycleAnswer
	if err := json.Unmarshal(text, &answer); err != nil {
		return false, fmt.Errorf("tell Auto Scaling through %s: read the answer: %w", c.URL, err)
	}

	return answer.Waited, nil
}
