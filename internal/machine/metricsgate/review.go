// SPDX-License-Identifier: Apache-2.0

package metricsgate

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
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
)

const (
	// decisionTime is how long a decision to allow is used without asking again.
	decisionTime = time.Minute
	// decisionTimeWithoutAPI is how long it is used while the API server does not answer, because
	// its metrics are needed then.
	decisionTimeWithoutAPI = 15 * time.Minute
	// maxDecisions is how many are remembered. One Prometheus needs one for each source.
	maxDecisions = 256
	// maxQuestions is how many callers are asked about at once: the gate must not be a way to load
	// the API server.
	maxQuestions = 4
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

	mu        sync.Mutex
	allowed   map[decision]time.Time
	questions chan struct{}
}

// decision is what is remembered: not the token itself.
type decision struct {
	token [sha256.Size]byte
	path  string
}

// NewReviewer returns a Reviewer.
func NewReviewer(api kube.Client, audience string, now func() time.Time) *Reviewer {
	return &Reviewer{
		API:       api,
		Audience:  audience,
		Now:       now,
		allowed:   map[decision]time.Time{},
		questions: make(chan struct{}, maxQuestions),
	}
}

// Check returns nil if the caller with this token may get the path. Other errors than
// ErrUnknownCaller and ErrForbidden mean that the API server did not answer.
func (r *Reviewer) Check(ctx context.Context, token, path string) error {
	if !r.isForGate(token) {
		return ErrUnknownCaller
	}

	key := decision{sha256.Sum256([]byte(token)), path}
	age, known := r.age(key)
	if known && age < decisionTime {
		return nil
	}

	err := r.ask(ctx, token, path)
	if err == nil {
		r.remember(key)
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

// isForGate reports whether a token claims to be for the gate. It does not check the signature: it
// saves questions about tokens that cannot be valid.
func (r *Reviewer) isForGate(token string) bool {
	parts := strings.Split(token, ".")
	if len(token) > maxToken || len(parts) != 3 {
		return false
	}

	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return false
	}

	var claims struct {
		Audiences []string `json:"aud"`
	}

	return json.Unmarshal(body, &claims) == nil && slices.Contains(claims.Audiences, r.Audience)
}

// ask asks the API server who the caller is, and whether it may read.
func (r *Reviewer) ask(ctx context.Context, token, path string) error {
	select {
	case r.questions <- struct{}{}:
		defer func() { <-r.questions }()
	case <-ctx.Done():
		return ctx.Err()
	}

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
	at, known := r.allowed[key]

	return r.Now().Sub(at), known
}

func (r *Reviewer) remember(key decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.allowed) >= maxDecisions {
		r.removeOldest()
	}

	r.allowed[key] = r.Now()
}

// removeOldest makes room: tokens are renewed every hour.
func (r *Reviewer) removeOldest() {
	var oldest decision
	first := true
	for key, at := range r.allowed {
		if first || at.Before(r.allowed[oldest]) {
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
