// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// limitedAPI is an API that accepts k calls per second and a burst of as many, like the token buckets of
// EC2. Each call takes 20 ms.
type limitedAPI struct {
	k float64

	mu      sync.Mutex
	tokens  float64
	last    time.Time
	served  int
	refused int
}

func (l *limitedAPI) Do(*http.Request) (*http.Response, error) {
	const latency = 20 * time.Millisecond
	time.Sleep(latency)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.last.IsZero() {
		l.tokens = l.k
	} else {
		l.tokens = min(l.k, l.tokens+now.Sub(l.last).Seconds()*l.k)
	}
	l.last = now
	status, body := http.StatusOK, `<DescribeVpcsResponse><vpcSet/></DescribeVpcsResponse>`
	if l.tokens < 1 {
		l.refused++
		status, body = http.StatusServiceUnavailable, `<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>Request limit exceeded.</Message></Error></Errors></Response>`
	} else {
		l.served++
		l.tokens--
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func paceConfig(client sdk.HTTPClient) sdk.Config {
	return sdk.Config{Region: "us-east-1", HTTPClient: client, Credentials: credentials.NewStaticCredentialsProvider("a", "b", "")}
}

// TestRateAdaptsToTheLimit sends 300 calls at once to an API that accepts only k per second. Every call must
// succeed in the end, few may be throttled, and the rate that the API accepts must be used.
func TestRateAdaptsToTheLimit(t *testing.T) {
	const calls = 300
	for _, k := range []float64{1, 5, 20, 100} {
		synctest.Test(t, func(t *testing.T) {
			api := &limitedAPI{k: k}
			count := &CallLimiter{}
			client := ec2.NewFromConfig(count.Instrument(paceConfig(api)))
			start := time.Now()
			var wg sync.WaitGroup
			for range calls {
				wg.Go(func() {
					if _, err := client.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{}); err != nil {
						t.Errorf("k=%g: %v", k, err)
					}
				})
			}
			wg.Wait()
			took, best := time.Since(start), time.Duration((calls-k)/k*float64(time.Second))
			stats := count.Stats()
			t.Logf("a limit of %g calls/s, %d calls at once: %d throttled (%.0f%%), %.0fs, %.1f times the minimum",
				k, calls, api.refused, 100*float64(api.refused)/calls, took.Seconds(), took.Seconds()/best.Seconds())
			if api.served != calls || stats.Throttled != api.refused || stats.Retries != api.refused {
				t.Errorf("k=%g: %d served, %d refused, %+v", k, api.served, api.refused, stats)
			}
			// Those in flight when the first call is throttled, and one in six of the later calls.
			if most := maxInFlight + calls/6; api.refused > most {
				t.Errorf("k=%g: %d calls were throttled, want at most %d", k, api.refused, most)
			}
			if took > 2*best+10*time.Second {
				t.Errorf("k=%g: it took %s, the minimum is %s", k, took, best)
			}
			all, mutating := count.TotalCalls()
			if all != calls+api.refused || mutating != 0 {
				t.Errorf("%d calls were counted, %d of which change something", all, mutating)
			}
		})
	}
}

// TestLimitersAreIndependent checks that the limit of one API slows no other API, and that the limit of changes
// slows no reads.
func TestLimitersAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &limiterSet{clock: (&CallLimiter{}).effectiveClock()}
		b := p.limiterFor("EC2", "CreateVpc")
		for range 4 {
			if _, err := b.acquireSlot(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.releaseSlot()
		}
		b.recordThrottle(time.Now())
		start := time.Now()
		for _, other := range []*adaptiveLimiter{p.limiterFor("EC2", "DescribeVpcs"), p.limiterFor("IAM", "CreateRole")} {
			if _, err := other.acquireSlot(t.Context()); err != nil || time.Since(start) != 0 {
				t.Errorf("a call to another API waited %s: %v", time.Since(start), err)
			}
		}
		if _, err := p.limiterFor("EC2", "CreateSubnet").acquireSlot(t.Context()); err != nil || time.Since(start) != 500*time.Millisecond {
			t.Errorf("4 calls per second were too many, so the next is sent after half a second, not %s: %v", time.Since(start), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := b.acquireSlot(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a cancelled call still waits: %v", err)
		}
	})
}

// TestClockIsInjected checks that a CallLimiter with its own clock uses no other one.
func TestClockIsInjected(t *testing.T) {
	now := time.Unix(0, 0)
	var mu sync.Mutex
	tell := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	c := &CallLimiter{Now: tell, Sleep: func(_ context.Context, d time.Duration) error {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
		return nil
	}}
	fails := 3
	client := ec2.NewFromConfig(c.Instrument(paceConfig(clientFunc(func(*http.Request) (*http.Response, error) {
		if fails--; fails >= 0 {
			body := `<Response><Errors><Error><Code>RequestLimitExceeded</Code></Error></Errors></Response>`
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
		}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`<DescribeVpcsResponse/>`))}, nil
	}))))
	start := time.Now()
	if _, err := client.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{}); err != nil {
		t.Fatal(err)
	}
	if real := time.Since(start); real > time.Second || c.Stats().Waited < time.Second || c.Stats().Throttled != 3 {
		t.Errorf("%s of real time passed, %+v", real, c.Stats())
	}
}

type clientFunc func(*http.Request) (*http.Response, error)

func (f clientFunc) Do(r *http.Request) (*http.Response, error) { return f(r) }

// TestClassifyRetry is the table of which failed calls are retried, and why.
func TestClassifyRetry(t *testing.T) {
	api := func(code string) error { return &smithy.GenericAPIError{Code: code} }
	broken := errors.New("connection reset by peer")
	token := sdk.String("x")
	for _, tc := range []struct {
		name  string
		fresh bool
		op    string
		in    any
		err   error
		want  retryReason
	}{
		{"served", false, "CreateVpc", nil, nil, noRetry},
		{"throttled, whatever it is", false, "CreateVpc", nil, api("RequestLimitExceeded"), retryThrottled},
		{"throttled by IAM", false, "CreateRole", nil, api("Throttling"), retryThrottled},
		{"a read without an answer", false, "DescribeVpcs", nil, broken, retryTransient},
		{"a creation without an answer may have happened", false, "CreateVpc", nil, broken, noRetry},
		{"with a token it is the same one", false, "CreateNatGateway", &ec2.CreateNatGatewayInput{ClientToken: token}, broken, retryTransient},
		{"without a token it is another", false, "CreateNatGateway", &ec2.CreateNatGatewayInput{}, broken, noRetry},
		{"what says the end may be said again", false, "PutRolePolicy", nil, broken, retryTransient},
		{"a deletion without an answer", false, "DeleteRouteTable", nil, broken, retryTransient},
		{"an address that may be released", false, "ReleaseAddress", nil, broken, retryTransient},
		{"what was detached could be attached elsewhere by now", false, "DetachInternetGateway", nil, broken, noRetry},
		{"refused for good", false, "CreateVpc", nil, api("InvalidVpc.Range"), noRetry},
		{"a role has no right", false, "DescribeVpcs", nil, api("UnauthorizedOperation"), noRetry},
		{"what is not there is not waited for", false, "CreateSubnet", nil, api("InvalidVpcID.NotFound"), noRetry},
		{"but for what was just made", true, "CreateSubnet", nil, api("InvalidVpcID.NotFound"), retryNotPropagated},
		{"a new group is not seen when its first rule is to go", true, "RevokeSecurityGroupEgress", nil, api("InvalidGroup.NotFound"), retryNotPropagated},
		{"what is gone is gone", true, "RevokeSecurityGroupEgress", nil, api("InvalidPermission.NotFound"), noRetry},
	} {
		ctx := t.Context()
		if tc.fresh {
			ctx = ExpectPropagation(ctx)
		}
		if got := classifyRetry(ctx, tc.op, tc.in, tc.err); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	if class := plan.ErrorClassOf(Wrap(api("RequestLimitExceeded"), "x")); class != plan.Throttled {
		t.Errorf("a call whose retries are exhausted has class %q", class)
	}
}

// TestPollingCallsDoNotGrowWithWaits checks that waiting for many gateways needs one call per round, for any
// number of gateways.
func TestPollingCallsDoNotGrowWithWaits(t *testing.T) {
	looks := map[int]int{}
	for _, n := range []int{1, 3, 50} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			b := &StatePoller[time.Duration]{Describe: func(_ context.Context, ids []string) (map[string]time.Duration, error) {
				looks[n]++
				out := map[string]time.Duration{}
				for _, id := range ids {
					out[id] = time.Since(start)
				}
				return out, nil
			}}
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					err := b.WaitUntil(t.Context(), strings.Repeat("x", i+1), func(age time.Duration, _ bool) (bool, error) { return age >= 100*time.Second, nil })
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			time.Sleep(2 * maxPollInterval) // polling stops with the last wait
		})
	}
	t.Logf("calls within 100 s of waiting for n resources: %v", looks)
	if looks[1] != looks[3] || looks[1] != looks[50] {
		t.Errorf("the number of calls grows with the number of resources: %v", looks)
	}
}
