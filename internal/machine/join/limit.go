// SPDX-License-Identifier: Apache-2.0

package join

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Rate limits of requests that cost calls to AWS: burst, and requests per second. Each costs one
// call to STS and one to EC2.
const (
	requestBurst = 50
	requestRate  = 10
	// An address gets a part of what all callers without a certificate get together. Behind the
	// load balancer, all callers have the addresses of its nodes.
	addressBurst = 20
	addressRate  = 2
	// An instance asks seldom: for certificates every few hours, and with pauses that grow when
	// something fails. It takes twenty of them to block the others.
	instanceBurst = 20
	instanceRate  = 0.5
	// maxCallers is how many callers are remembered.
	maxCallers = 4096
)

// requestCaller is the sender of a request, before its proof is checked.
type requestCaller struct {
	// instance is that of the node certificate that TLS has verified; empty without one.
	instance string
	// address has a port. It is that of the load balancer if the request came through it.
	address string
}

// newRequestCaller returns the sender of a request.
func newRequestCaller(r *http.Request, now time.Time) requestCaller {
	return requestCaller{instance: verifiedInstance(r, now), address: r.RemoteAddr}
}

// verifiedInstance returns the instance that the client's certificate of a node names; empty if it
// has none. A connection may be older than the end of its certificate.
func verifiedInstance(r *http.Request, now time.Time) string {
	if _, isNode := verifiedNode(r); !isNode || now.After(r.TLS.VerifiedChains[0][0].NotAfter) {
		return ""
	}

	for _, organization := range r.TLS.VerifiedChains[0][0].Subject.Organization {
		if id, found := strings.CutPrefix(organization, InstanceOrganization("")); found {
			return id
		}
	}

	return ""
}

// requestLimits limits requests. Those with the certificate of a node have limits of their own, so
// that callers without one, whom nobody can tell apart behind the load balancer, cannot use them
// up. The zero value is ready to use. It is safe for concurrent use.
type requestLimits struct {
	mu        sync.Mutex
	nodes     callerLimits
	strangers callerLimits
}

// take takes a token for a request. It reports whether there was one.
func (l *requestLimits) take(from requestCaller, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if from.instance != "" {
		return l.nodes.take(from.instance, bucketSize{instanceBurst, instanceRate}, now)
	}

	return l.strangers.take(findHost(from.address), bucketSize{addressBurst, addressRate}, now)
}

// findHost returns the host of an address with a port. A program of the machine itself has a choice
// of loopback addresses, which count as one.
func findHost(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}

	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return "loopback"
	}

	return host
}

// callerLimits limits requests by caller and altogether.
type callerLimits struct {
	all     tokenBucket
	callers map[string]*tokenBucket
}

// take takes a token of a caller, and one of all.
func (l *callerLimits) take(name string, size bucketSize, now time.Time) bool {
	if l.callers == nil {
		l.callers = map[string]*tokenBucket{}
	}

	caller := l.callers[name]
	if caller == nil {
		l.forgetIdle(size, now)
		caller = &tokenBucket{}
		l.callers[name] = caller
	}

	return caller.take(size, now) && l.all.take(bucketSize{requestBurst, requestRate}, now)
}

// forgetIdle makes room for one more caller: it forgets those that have all their tokens again, or
// else any one.
func (l *callerLimits) forgetIdle(size bucketSize, now time.Time) {
	if len(l.callers) < maxCallers {
		return
	}

	for name, b := range l.callers {
		if now.Sub(b.refilledAt).Seconds()*size.rate >= size.burst {
			delete(l.callers, name)
		}
	}

	for name := range l.callers {
		if len(l.callers) < maxCallers {
			return
		}

		delete(l.callers, name)
	}
}

// bucketSize is how many tokens a bucket has, and how many it gets a second.
type bucketSize struct{ burst, rate float64 }

// tokenBucket is full when it is used first.
type tokenBucket struct {
	tokens     float64
	refilledAt time.Time
}

// take takes a token. It reports whether there was one.
func (b *tokenBucket) take(size bucketSize, now time.Time) bool {
	if b.refilledAt.IsZero() {
		b.tokens = size.burst
		b.refilledAt = now
	}

	b.tokens = min(size.burst, b.tokens+size.rate*now.Sub(b.refilledAt).Seconds())
	b.refilledAt = now
	if b.tokens < 1 {
		return false
	}

	b.tokens--

	return true
}
