// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// RequestType is what an operator asks the machine of etcd's leader to do.
type RequestType string

// The types of requests.
const (
	// RequestSnapshot takes a backup.
	RequestSnapshot RequestType = "snapshot"
	// RequestDefrag defragments all members, one at a time.
	RequestDefrag RequestType = "defrag"
	// RequestStartAPI starts the API server that a request with StopsAPI has stopped.
	RequestStartAPI RequestType = "start-api"
)

// MaxAPIStop is how long an API server stays stopped by a request: after that the machine starts it again, since whoever asked may
// not come back. A move of etcd takes a few minutes.
const MaxAPIStop = 15 * time.Minute

// RequestTTL is how old a request may be when a machine begins to carry it out. The operator has stopped waiting by
// then.
const RequestTTL = 10 * time.Minute

// Request asks the machine of etcd's leader to do something now. There is one at a time: an operator writes it while
// holding the cluster's lock.
type Request struct {
	// ID of the request, random.
	ID string `json:"id"`
	// Type of the request.
	Type RequestType `json:"type"`
	// Reason is request, upgrade or move.
	Reason string `json:"reason"`
	// CreatedAt is when it was written, by the operator's clock.
	CreatedAt time.Time `json:"createdAt"`
	// By is who asks, for people.
	By string `json:"by"`
	// StopsAPI asks for a backup with all that was ever written: the API server of the machine stops first, and starts again after
	// MaxAPIStop or RequestStartAPI. Agents of earlier versions ignore it; see [Answer].
	StopsAPI bool `json:"stopsAPI,omitempty"`
	// IsSigned is set by ReadRequest if somebody with the key of the Kubernetes CA has signed the request. Without it, the API server is
	// neither stopped nor started.
	IsSigned bool `json:"-"`
}

// NeedsSignature reports whether a machine must not carry the request out, nor an operator believe the answer, without a signature.
func (r Request) NeedsSignature() bool { return r.StopsAPI || r.Type == RequestStartAPI }

// Expired reports whether a machine must not begin to carry the request out.
func (r Request) Expired(now time.Time) bool { return now.Sub(r.CreatedAt).Abs() > RequestTTL }

// Answer is how far a request has been carried out.
type Answer struct {
	// ID of the request.
	ID string `json:"id"`
	// Machine is the EC2 instance id of the machine that carries it out.
	Machine string `json:"machine"`
	// UpdatedAt is when the answer was written, by the machine's clock.
	UpdatedAt time.Time `json:"updatedAt"`
	// Step says what is being done, for people.
	Step string `json:"step,omitempty"`
	// Done means that nothing more happens.
	Done bool `json:"done"`
	// Error says why it failed; empty if it did not.
	Error string `json:"error,omitempty"`
	// Backup is the id of the backup that was taken.
	Backup string `json:"backup,omitempty"`
	// APIStopped is set if the backup has everything: the API server was stopped before it was taken, and is.
	APIStopped bool `json:"apiStopped,omitempty"`
	// IsSigned is set by ReadAnswer if a machine of the cluster has signed the answer. Agents of earlier versions do not.
	IsSigned bool `json:"-"`
	// Members that were defragmented, in their order.
	Members []DefragResult `json:"members,omitempty"`
}

// DefragResult is the result of the defragmentation of one member.
type DefragResult struct {
	// Member is its name, such as etcd-a.
	Member string `json:"member"`
	// Before and After are the sizes of its database in bytes.
	Before int64 `json:"before"`
	After  int64 `json:"after"`
	// Seconds that it took; the member did not answer meanwhile.
	Seconds float64 `json:"seconds"`
}

// RequestKey returns the key of the request in the machine store.
func RequestKey(cluster string) string { return node.EtcdPrefix(cluster) + "request.json" }

// AnswerKey returns the key of the answer.
func AnswerKey(cluster string) string { return node.EtcdPrefix(cluster) + "answer.json" }

// ReadRequest returns the newest request, or nil if there is none. Without Records, none counts as signed.
func (a Archive) ReadRequest(ctx context.Context) (*Request, error) {
	out, isSigned, err := readMessage[Request](ctx, a, RequestKey(a.Cluster))
	if out != nil {
		out.IsSigned = isSigned
	}

	return out, err
}

// ReadAnswer returns the newest answer, or nil if there is none. Without Records, none counts as signed.
func (a Archive) ReadAnswer(ctx context.Context) (*Answer, error) {
	out, isSigned, err := readMessage[Answer](ctx, a, AnswerKey(a.Cluster))
	if out != nil {
		out.IsSigned = isSigned
	}

	return out, err
}

// WriteRequest writes a request, and signs it if there are Records. The caller holds the cluster's lock.
func (a Archive) WriteRequest(ctx context.Context, r Request) error {
	return a.writeMessage(ctx, RequestKey(a.Cluster), r)
}

// WriteAnswer writes an answer, and signs it if there are Records.
func (a Archive) WriteAnswer(ctx context.Context, answer Answer) error {
	return a.writeMessage(ctx, AnswerKey(a.Cluster), answer)
}

// readMessage reads a message, nil if there is none, and reports whether it is signed.
func readMessage[T any](ctx context.Context, a Archive, key string) (message *T, isSigned bool, err error) {
	o, err := a.Store.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, false, nil
	}

	if err != nil {
		return nil, false, err
	}

	message = new(T)
	if a.Records != nil && a.Records.Read(o.Body, key, message) == nil {
		return message, true, nil
	}

	if err := json.Unmarshal(o.Body, message); err != nil {
		return nil, false, fmt.Errorf("read %s in %s: %w", key, a.Store.URL(), err)
	}

	return message, false, nil
}

func (a Archive) writeMessage(ctx context.Context, key string, message any) error {
	if a.Records == nil {
		return writeJSON(ctx, a.Store, key, message)
	}

	body, err := a.Records.Sign(key, message)
	if err != nil {
		return err
	}

	_, err = a.Store.Put(ctx, key, body)

	return err
}

func writeJSON(ctx context.Context, s store.Store, key string, value any) error {
	body, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}

	_, err = s.Put(ctx, key, body)

	return err
}
