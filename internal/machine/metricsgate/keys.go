// SPDX-License-Identifier: Apache-2.0

package metricsgate

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/oidcdiscovery"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

const (
	// keysPause is the least time between two requests for the keys, which the API server seldom
	// changes.
	keysPause = 10 * time.Second
	// keysTimeout limits such a request.
	keysTimeout = 5 * time.Second
	// clockDifference is how far the clock of an API server may differ.
	clockDifference = time.Minute
)

// signingKeys are the public keys with which the API server signs tokens of service accounts. Every
// service account may read them. With them the gate refuses what the API server has not signed
// without a question. It is safe for concurrent use.
type signingKeys struct {
	api kube.Client
	now func() time.Time

	mu      sync.Mutex
	known   bool
	set     map[string]*ecdsa.PublicKey // not changed once it is here
	triedAt time.Time
	// asked is closed when the request that runs has ended.
	asked chan struct{}
}

// verify returns the account that a token is of, if the API server has signed it for an audience
// and it has not ended. Otherwise it returns ErrUnknownCaller. While the keys are not known it
// believes the token, and returns no account.
func (k *signingKeys) verify(ctx context.Context, text, audience string) (account string, err error) {
	t, err := parseToken(text)
	if err != nil || !slices.Contains(t.Audiences, audience) || t.hasEnded(k.now()) {
		return "", ErrUnknownCaller
	}

	set, known := k.current()
	if known && t.isSignedBy(set) {
		return t.Subject, nil
	}

	// The API server may have a new key.
	if set, known = k.refresh(ctx); !known {
		return "", nil
	}

	if !t.isSignedBy(set) {
		return "", ErrUnknownCaller
	}

	return t.Subject, nil
}

func (k *signingKeys) current() (set map[string]*ecdsa.PublicKey, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()

	return k.set, k.known
}

// refresh returns the keys that the API server has now, or those that are known if it was asked a
// short time ago or does not answer. One caller asks. The others wait for it only while no keys are
// known.
func (k *signingKeys) refresh(ctx context.Context) (set map[string]*ecdsa.PublicKey, known bool) {
	asked, isDue := k.start()

	if isDue {
		defer close(asked)
		// A caller that goes away must not keep the others from the keys.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysTimeout)
		defer cancel()
		fetched, err := k.fetch(ctx)
		if err != nil {
			return k.current()
		}

		k.mu.Lock()
		defer k.mu.Unlock()
		k.set = fetched
		k.known = true

		return k.set, true
	}

	if set, known = k.current(); known {
		return set, true
	}

	select {
	case <-asked:
	case <-ctx.Done():
	}

	return k.current()
}

// start reports whether the API server may be asked now, and counts that as asked. The channel is
// closed when the request has ended.
func (k *signingKeys) start() (asked chan struct{}, isDue bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if k.asked != nil && now.Sub(k.triedAt) < keysPause {
		return k.asked, false
	}

	k.triedAt = now
	k.asked = make(chan struct{})

	return k.asked, true
}

func (k *signingKeys) fetch(ctx context.Context) (map[string]*ecdsa.PublicKey, error) {
	body, err := k.api.Do(ctx, http.MethodGet, "/"+oidcdiscovery.KeySetPath, "", nil)
	if err != nil {
		return nil, fmt.Errorf("read the public keys of service accounts: %w", err)
	}

	keys, err := oidcdiscovery.ParseKeySet(body)
	if err == nil && len(keys) == 0 {
		err = errors.New("none of the public keys of service accounts is on the curve P-256")
	}

	return keys, err
}
