// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

func TestClasses(t *testing.T) {
	for code, want := range map[string]plan.ErrorClass{
		"RequestLimitExceeded": plan.Throttled, "Throttling": plan.Throttled, "ThrottlingException": plan.Throttled,
		"InvalidVpcID.NotFound": plan.NotFound, "NoSuchEntity": plan.NotFound, "LoadBalancerNotFound": plan.NotFound, "NotFoundException": plan.NotFound,
		"InvalidPermission.Duplicate": plan.AlreadyExists, "EntityAlreadyExists": plan.AlreadyExists, "InvalidLaunchTemplateName.AlreadyExistsException": plan.AlreadyExists,
		"DependencyViolation": plan.InUse, "VolumeInUse": plan.InUse, "ResourceInUse": plan.InUse, "DeleteConflict": plan.InUse,
		"UnauthorizedOperation": plan.AccessDenied, "AccessDenied": plan.AccessDenied, "AccessDeniedException": plan.AccessDenied,
		"AddressLimitExceeded": plan.LimitExceeded, "VpcLimitExceeded": plan.LimitExceeded, "TooManyTargetGroups": plan.LimitExceeded,
		"IncorrectState": plan.NotReady, "InvalidParameterValue": plan.Unclassified, "MalformedPolicyDocument": plan.Unclassified,
	} {
		err := wrap(&smithy.GenericAPIError{Code: code, Message: "m"}, "create vpc")
		if got := plan.ErrorClassOf(fmt.Errorf("create vpc/main: %w", err)); got != want {
			t.Errorf("%s: class %q, want %q", code, got, want)
		}
		if got := err.Error(); got != "create vpc: "+code+": m" {
			t.Errorf("%s: %q", code, got)
		}
	}
	late := &smithy.GenericAPIError{Code: "ValidationError", Message: "Invalid IamInstanceProfile: Invalid IAM Instance Profile name"}
	if got := plan.ErrorClassOf(wrap(late, "create")); got != plan.NotReady {
		t.Errorf("a new profile is not seen at once: %q", got)
	}
	if wrap(nil, "x") != nil {
		t.Error("no error became one")
	}
}

func TestTagChanges(t *testing.T) {
	set, remove := diffTags(
		awskind.Tags{"Name": "a", "slipway.dev/cluster": "demo", "new": "1"},
		awskind.Tags{"Name": "b", "slipway.dev/cluster": "demo", "slipway.dev/old": "x", "cost-centre": "7"},
	)
	if diff := cmp.Diff(awskind.Tags{"Name": "a", "new": "1"}, set); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"slipway.dev/old"}, remove); diff != "" {
		t.Errorf("only ours go: %s", diff)
	}
}

// wires is an HTTP client that breaks the first connections.
type wires struct {
	broken int32
	tries  atomic.Int32
}

func (w *wires) Do(*http.Request) (*http.Response, error) {
	if w.tries.Add(1) <= w.broken {
		return nil, errors.New("connection reset by peer")
	}
	body := `<DescribeVpcsResponse><vpcSet/></DescribeVpcsResponse>`
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func TestOnlyReadsAreRepeatedWhenAConnectionBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := func(broken int32) (*wires, *ec2.Client) {
			w := &wires{broken: broken}
			cfg := (&CallLimiter{}).PaceCalls(sdk.Config{Region: "us-east-1", HTTPClient: w, Credentials: credentials.NewStaticCredentialsProvider("a", "b", "")})
			return w, ec2.NewFromConfig(cfg)
		}
		w, api := client(2)
		if _, err := api.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{}); err != nil || w.tries.Load() != 3 {
			t.Errorf("a read: %d tries, %v", w.tries.Load(), err)
		}
		w, api = client(100)
		if _, err := api.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{}); err == nil || w.tries.Load() != maxTransientAttempts {
			t.Errorf("a read without end: %d tries, %v", w.tries.Load(), err)
		}
		w, api = client(1)
		if _, err := api.CreateVpc(t.Context(), &ec2.CreateVpcInput{CidrBlock: sdk.String("10.0.0.0/16")}); err == nil || w.tries.Load() != 1 {
			t.Errorf("a change whose answer is lost may have happened: %d tries, %v", w.tries.Load(), err)
		}
	})
}

func TestWaitsShareTheirLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var asked [][]string
		b := &statePoller[time.Duration]{describe: func(_ context.Context, ids []string) (map[string]time.Duration, error) {
			asked = append(asked, ids)
			out := map[string]time.Duration{}
			for _, id := range ids {
				if id != "gone" {
					out[id] = time.Since(start)
				}
			}
			return out, nil
		}}
		done := make(chan error, 3)
		for _, id := range []string{"a", "b"} {
			go func() {
				done <- b.waitUntil(t.Context(), id, func(age time.Duration, _ bool) (bool, error) { return age > 20*time.Second, nil })
			}()
		}
		go func() {
			done <- b.waitUntil(t.Context(), "gone", func(_ time.Duration, found bool) (bool, error) { return !found, nil })
		}()
		for range 3 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if len(asked) > 14 {
			t.Errorf("%d looks in 20 s", len(asked))
		}
		for _, ids := range asked[1:] {
			if diff := cmp.Diff([]string{"a", "b"}, ids); diff != "" {
				t.Errorf("two waits are one look: %s", diff)
			}
		}
		time.Sleep(10 * time.Second) // it stops by itself when nobody waits
	})
}

type fakeImages []ec2types.Image

func (f fakeImages) DescribeImages(_ context.Context, in *ec2.DescribeImagesInput, _ ...func(*ec2.Options)) (*ec2.DescribeImagesOutput, error) {
	out := &ec2.DescribeImagesOutput{}
	for _, i := range f {
		byID := *in.Filters[0].Name == "image-id" && slices.Contains(in.Filters[0].Values, *i.ImageId)
		fits, err := path.Match(in.Filters[0].Values[0], sdk.ToString(i.Name))
		if err != nil {
			return nil, err
		}
		arch := len(in.Filters) < 3 || in.Filters[2].Values[0] == string(i.Architecture)
		if byID || fits && arch && slices.Contains(in.Owners, sdk.ToString(i.OwnerId)) {
			out.Images = append(out.Images, i)
		}
	}
	return out, nil
}

type fakeParameters map[string]string

func (f fakeParameters) GetParameter(_ context.Context, in *ssm.GetParameterInput, _ ...func(*ssm.Options)) (*ssm.GetParameterOutput, error) {
	v, ok := f[*in.Name]
	if !ok {
		return nil, &smithy.GenericAPIError{Code: "ParameterNotFound"}
	}
	return &ssm.GetParameterOutput{Parameter: &ssmtypes.Parameter{Value: &v}}, nil
}

func TestImages(t *testing.T) {
	image := func(id string, arch ec2types.ArchitectureValues, name, created string) ec2types.Image {
		return ec2types.Image{
			ImageId: &id, Architecture: arch, RootDeviceName: sdk.String("/dev/xvda"), Name: &name, CreationDate: &created, OwnerId: sdk.String("136693071363"),
		}
	}
	deprecated, bare, store := image("ami-3", "x86_64", "old", ""), image("ami-4", "x86_64", "bare", ""), image("ami-5", "x86_64", "store", "")
	deprecated.DeprecationTime = sdk.String("2025-01-01T00:00:00.000Z")
	bare.EnaSupport = sdk.Bool(false)
	store.RootDeviceType = ec2types.DeviceTypeInstanceStore
	s := imageSource{
		images: fakeImages{
			image("ami-1", "x86_64", "debian-12-amd64-1", "2026-01-01T00:00:00.000Z"), image("ami-2", "arm64", "debian-12-arm64-1", "2026-01-01T00:00:00.000Z"),
			image("ami-6", "x86_64", "debian-12-amd64-3", "2026-03-01T00:00:00.000Z"), image("ami-7", "x86_64", "debian-12-amd64-2", "2026-02-01T00:00:00.000Z"),
			deprecated, bare, store,
		},
		parameters: fakeParameters{"/debian": "ami-1", "/old": "ami-9"}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	got, fs, err := resolveImages(t.Context(), s, map[string]ImageRequest{
		"a": {"ssm:/debian", "amd64"}, "b": {"ami-2", "arm64"}, "c": {"ssm:/none", "amd64"}, "d": {"ssm:/old", "amd64"}, "e": {"ami-8", "amd64"}, "f": {"136693071363/debian-12-amd64-*", "amd64"},
		"g": {"136693071363/nothing-*", "amd64"}, "h": {"ami-3", "amd64"}, "i": {"ami-4", "amd64"}, "j": {"ami-5", "amd64"}, "k": {"136693071363/debian-12-*", "arm64"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for at, i := range got {
		ids[at] = i.ID + " " + i.Arch
	}
	if diff := cmp.Diff(map[string]string{
		"a": "ami-1 amd64", "b": "ami-2 arm64", "c": " ", "d": " ", "e": " ", "f": "ami-6 amd64", "g": " ", "h": "ami-3 amd64", "i": "ami-4 amd64", "j": "ami-5 amd64", "k": "ami-2 arm64",
	}, ids); diff != "" {
		t.Error(diff)
	}
	var paths []string
	for _, f := range fs {
		paths = append(paths, string(f.Severity)+" "+f.Path)
	}
	if diff := cmp.Diff([]string{"error c", "error g", "error d", "error e", "warning h", "error i", "error j"}, paths); diff != "" {
		t.Errorf("all that is wrong at once: %s", diff)
	}
}
