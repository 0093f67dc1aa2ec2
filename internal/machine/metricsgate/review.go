// SPDX-License-Identifier: Apache-2.0

package metricsgate

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

var (
	// ErrUnknownCaller says that a token is not valid, or not for the gate.
	ErrUnknownCaller = errors.New("unknown caller")
	// ErrForbidden says that the caller is known and may not read.
	ErrForbidden = errors.New("forbidden")
	// ErrBusy says that too many callers wait for answers of the API server.
	ErrBusy = errors.New("too many callers wait")
)

const (
	// decisionTime is how long a decision to allow is used without asking again.
	decisionTime = time.Minute
	// decisionTimeWithoutAPI is how long it is used while the API server does not answer, because
	// its metrics are needed then.
	decisionTimeWithoutAPI = 15 * time.Minute
	// maxDecisions is how many are remembered. One Prometheus needs one for each source.
	maxDecisions = 256
	// maxToken is the greatest length of a token.
	maxToken = 16 << 10
)

// Reviewer decides who may read a path, by asking the API server. It is safe for concurrent use.
type Reviewer struct {
	// API is the API server, which allows the gate to create TokenReviews and SubjectAccessReviews.
	API kube.Client
	// Audience that a token must have. A token for the API server has another one, so nobody has to
	// send it here.
	Audience string
	// Now is the clock.
	Now func() time.Time

	keys   *signingKeys
	places *places

	mu      sync.Mutex
	allowed map[decision]acceptance
}

// decision is what is remembered: not the token itself.
type decision struct {
	token [sha256.Size]byte
	path  string
}

// acceptance is when a caller was allowed to read, and whose token it was; empty if that was not
// known before.
type acceptance struct {
	at      time.Time
	account string
}

// NewReviewer returns a Reviewer.
func NewReviewer(api kube.Client, audience string, now func() time.Time) *Reviewer {
	return &Reviewer{
		API:      api,
		Audience: audience,
		Now:      now,
		keys:     &signingKeys{api: api, now: now},
		places:   newPlaces(),
		allowed:  map[decision]acceptance{},
	}
}

// Check returns nil if the caller with this token may get the path. Other errors than
// ErrUnknownCaller, ErrForbidden and ErrBusy mean that the API server did not answer. What the API
// server has not signed is refused without a question.
func (r *Reviewer) Check(ctx context.Context, token, path string) error {
	account, err := r.keys.verify(ctx, token, r.Audience)
	if err != nil {
		return err
	}

	key := decision{sha256.Sum256([]byte(token)), path}
	age, known := r.age(key)
	if known && age < decisionTime {
		return nil
	}

	err = r.ask(ctx, token, queue{account: account, trust: r.trustOf(key.token, account)}, path)
	if err == nil {
		r.remember(key, account)
		return nil
	}

	refused := errors.Is(err, ErrUnknownCaller) || errors.Is(err, ErrForbidden)
	if refused {
		r.forget(key)
	}

	if known && !refused && age < decisionTimeWithoutAPI {
		return nil
	}

	return err
}

// ask asks the API server who the caller is, and whether it may read, once there is a place for the
// question.
func (r *Reviewer) ask(ctx context.Context, token string, from queue, path string) error {
	leave, err := r.places.take(ctx, from)
	if err != nil {
		return err
	}

	defer leave()
	who, err := r.identify(ctx, token)
	if err != nil {
		return err
	}

	return r.authorize(ctx, who, path)
}

// user is a caller, in the fields of both reviews.
type user struct {
	Name   string              `json:"username"`
	UID    string              `json:"uid"`
	Groups []string            `json:"groups"`
	Extra  map[string][]string `json:"extra"`
}

// identify returns whose the token is.
func (r *Reviewer) identify(ctx context.Context, token string) (user, error) {
	var status struct {
		Authenticated bool     `json:"authenticated"`
		User          user     `json:"user"`
		Audiences     []string `json:"audiences"`
	}
	spec := map[string]any{"token": token, "audiences": []string{r.Audience}}
	if err := r.review(ctx, "authentication", "TokenReview", spec, &status); err != nil {
		return user{}, err
	}

	// An API server that does not know audiences returns none.
	if !status.Authenticated || status.User.Name == "" || !slices.Contains(status.Audiences, r.Audience) {
		return user{}, ErrUnknownCaller
	}

	return status.User, nil
}

// authorize asks whether the user may get the path, which is no resource of Kubernetes.
func (r *Reviewer) authorize(ctx context.Context, who user, path string) error {
	var status struct {
		Allowed bool `json:"allowed"`
		Denied  bool `json:"denied"`
	}
	spec := map[string]any{
		"user":                  who.Name,
		"uid":                   who.UID,
		"groups":                who.Groups,
		"extra":                 who.Extra,
		"nonResourceAttributes": map[string]string{"path": path, "verb": "get"},
	}
	if err := r.review(ctx, "authorization", "SubjectAccessReview", spec, &status); err != nil {
		return err
	}

	if !status.Allowed || status.Denied {
		return ErrForbidden
	}

	return nil
}

// review creates a review, and decodes its status.
func (r *Reviewer) review(ctx context.Context, group, kind string, spec, status any) error {
	version := group + ".k8s.io/v1"
	body, err := json.Marshal(map[string]any{"apiVersion": version, "kind": kind, "spec": spec})
	if err != nil {
		return fmt.Errorf("encode a %s: %w", kind, err)
	}

	path := "/apis/" + version + "/" + strings.ToLower(kind) + "s"
	answer, err := r.API.Do(ctx, http.MethodPost, path, "application/json", body)
	if err != nil {
		return err
	}

	var object struct {
		Status json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(answer, &object); err != nil {
		return fmt.Errorf("decode a %s: %w", kind, err)
	}

	if err := json.Unmarshal(object.Status, status); err != nil {
		return fmt.Errorf("decode the status of a %s: %w", kind, err)
	}

	return nil
}

// age returns how long ago a decision to allow was made.
func (r *Reviewer) age(key decision) (age time.Duration, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.allowed[key]

	return r.Now().Sub(last.at), known
}

// trustOf returns what is known of a caller. Decisions count as long as they are used without the
// API server. Tokens are renewed, so that of an account that was accepted is enough.
func (r *Reviewer) trustOf(token [sha256.Size]byte, account string) trust {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Now()
	for key, last := range r.allowed {
		isSame := key.token == token || account != "" && last.account == account
		if isSame && now.Sub(last.at) < decisionTimeWithoutAPI {
			return accepted
		}
	}

	if account == "" {
		return unverified
	}

	return signed
}

func (r *Reviewer) remember(key decision, account string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.allowed) >= maxDecisions {
		r.removeOldest()
	}

	r.allowed[key] = acceptance{at: r.Now(), account: account}
}

// removeOldest makes room: tokens are renewed every hour.
func (r *Reviewer) removeOldest() {
	var oldest decision
	first := true
	for key, last := range r.allowed {
		if first || last.at.Before(r.allowed[oldest].at) {
			oldest, first = key, false
		}
	}

	delete(r.allowed, oldest)
}

func (r *Reviewer) forget(key decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.allowed, key)
}
