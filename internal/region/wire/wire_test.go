// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	v1as "github.com/aws/aws-sdk-go/service/autoscaling"
	v1ec2 "github.com/aws/aws-sdk-go/service/ec2"
	v1kms "github.com/aws/aws-sdk-go/service/kms"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix/awstest"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

const (
	testKey    = "AKIATEST"
	testSecret = "secret"
)

type oneKey struct{ key wire.AccessKey }

func (k oneKey) FindKey(id string) (wire.AccessKey, bool) { return k.key, id == testKey }

func rootKey() oneKey {
	return oneKey{wire.AccessKey{Secret: testSecret, Caller: wire.Caller{Account: "000000000000", Root: true}}}
}

// serve serves one service over HTTP, verifies signatures, and returns the URL.
func serve(t *testing.T, s wire.Service, keys wire.KeyStore, now func() time.Time) string {
	t.Helper()
	e := wire.NewEndpoint(s)
	v := wire.Verifier{Keys: keys, Region: "us-east-1", Now: now}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sig, err := wire.ParseSignature(r)
		var caller wire.Caller
		if err == nil {
			caller, err = v.Verify(r, sig, s)
		}
		if err != nil {
			wire.WriteError(w, r, s, err, "req-1")
			return
		}
		e.Serve(w, r.WithContext(wire.WithCaller(r.Context(), caller)), "req-1", nil)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func creds() aws.CredentialsProvider {
	return credentials.NewStaticCredentialsProvider(testKey, testSecret, "")
}

func ec2Service(ops ...wire.Operation) wire.Service {
	return wire.Service{Name: "ec2", Protocol: wire.EC2QueryProtocol, Version: "2016-11-15", Namespace: "http://ec2.amazonaws.com/doc/2016-11-15/", Operations: ops}
}

func ec2Client(endpoint string) *ec2.Client {
	return ec2.NewFromConfig(awstest.NewConfig(endpoint, "us-east-1", creds()))
}

func code(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorCode()
	}
	return ""
}

func TestEC2RoundTrip(t *testing.T) {
	t.Parallel()
	launched := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var got *v1ec2.RunInstancesInput
	run := wire.NewOperation("RunInstances", func(_ context.Context, in *v1ec2.RunInstancesInput) (*v1ec2.Reservation, error) {
		got = in
		return &v1ec2.Reservation{ReservationId: new("r-1"), Instances: []*v1ec2.Instance{{
			InstanceId: new("i-1"), LaunchTime: &launched, EbsOptimized: new(true), AmiLaunchIndex: new(int64(3)),
			Tags: []*v1ec2.Tag{{Key: new("a<b"), Value: new("c&d")}}, State: &v1ec2.InstanceState{Code: new(int64(0)), Name: new("pending")},
			NetworkInterfaces: []*v1ec2.InstanceNetworkInterface{{MacAddress: new("02:00")}},
		}}}, nil
	})
	client := ec2Client(serve(t, ec2Service(run), rootKey(), time.Now))
	out, err := client.RunInstances(t.Context(), &ec2.RunInstancesInput{
		ImageId: new("ami-1"), MinCount: new(int32(1)), MaxCount: new(int32(1)), UserData: new("aGk="), SecurityGroupIds: []string{"sg-1", "sg-2"},
		TagSpecifications:   []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{{Key: new("k"), Value: new("v w")}}}},
		BlockDeviceMappings: []types.BlockDeviceMapping{{DeviceName: new("/dev/xvda"), Ebs: &types.EbsBlockDevice{VolumeSize: new(int32(8)), Encrypted: new(true)}}},
		IamInstanceProfile:  &types.IamInstanceProfileSpecification{Name: new("p")},
		MetadataOptions:     &types.InstanceMetadataOptionsRequest{HttpPutResponseHopLimit: new(int32(1)), HttpTokens: types.HttpTokensStateRequired},
	})
	if err != nil {
		t.Fatal(err)
	}
	i := out.Instances[0]
	if *i.InstanceId != "i-1" || !i.LaunchTime.Equal(launched) || !*i.EbsOptimized || *i.AmiLaunchIndex != 3 ||
		*i.Tags[0].Key != "a<b" || *i.Tags[0].Value != "c&d" || i.State.Name != types.InstanceStateNamePending || *i.NetworkInterfaces[0].MacAddress != "02:00" {
		t.Errorf("instance came back as %+v", i)
	}
	want := &v1ec2.RunInstancesInput{
		ImageId: new("ami-1"), MinCount: new(int64(1)), MaxCount: new(int64(1)), UserData: new("aGk="), ClientToken: got.ClientToken,
		SecurityGroupIds:    []*string{new("sg-1"), new("sg-2")},
		TagSpecifications:   []*v1ec2.TagSpecification{{ResourceType: new("instance"), Tags: []*v1ec2.Tag{{Key: new("k"), Value: new("v w")}}}},
		BlockDeviceMappings: []*v1ec2.BlockDeviceMapping{{DeviceName: new("/dev/xvda"), Ebs: &v1ec2.EbsBlockDevice{VolumeSize: new(int64(8)), Encrypted: new(true)}}},
		IamInstanceProfile:  &v1ec2.IamInstanceProfileSpecification{Name: new("p")},
		MetadataOptions:     &v1ec2.InstanceMetadataOptionsRequest{HttpPutResponseHopLimit: new(int64(1)), HttpTokens: new("required")},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestAutoScalingRoundTrip(t *testing.T) {
	t.Parallel()
	var got *v1as.CreateAutoScalingGroupInput
	s := wire.Service{Name: "autoscaling", Protocol: wire.QueryProtocol, Version: "2011-01-01", Namespace: "http://autoscaling.amazonaws.com/doc/2011-01-01/", Operations: []wire.Operation{
		wire.NewOperation("CreateAutoScalingGroup", func(_ context.Context, in *v1as.CreateAutoScalingGroupInput) (*v1as.CreateAutoScalingGroupOutput, error) {
			got = in
			return &v1as.CreateAutoScalingGroupOutput{}, nil
		}),
		wire.NewOperation("DescribeAutoScalingGroups", func(_ context.Context, _ *v1as.DescribeAutoScalingGroupsInput) (*v1as.DescribeAutoScalingGroupsOutput, error) {
			return &v1as.DescribeAutoScalingGroupsOutput{AutoScalingGroups: []*v1as.Group{{AutoScalingGroupName: new("g"), MinSize: new(int64(2)), Tags: []*v1as.TagDescription{{Key: new("x")}}}}}, nil
		}),
	}}
	endpoint := serve(t, s, rootKey(), time.Now)
	client := autoscaling.NewFromConfig(awstest.NewConfig(endpoint, "us-east-1", creds()))
	_, err := client.CreateAutoScalingGroup(t.Context(), &autoscaling.CreateAutoScalingGroupInput{
		AutoScalingGroupName: new("g"), MinSize: new(int32(1)), MaxSize: new(int32(1)), TargetGroupARNs: []string{},
		Tags: []astypes.Tag{{Key: new("k"), PropagateAtLaunch: new(true)}}, VPCZoneIdentifier: new("subnet-1"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &v1as.CreateAutoScalingGroupInput{
		AutoScalingGroupName: new("g"), MinSize: new(int64(1)), MaxSize: new(int64(1)), TargetGroupARNs: []*string{},
		Tags: []*v1as.Tag{{Key: new("k"), PropagateAtLaunch: new(true)}}, VPCZoneIdentifier: new("subnet-1"),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	out, err := client.DescribeAutoScalingGroups(t.Context(), &autoscaling.DescribeAutoScalingGroupsInput{})
	if err != nil || len(out.AutoScalingGroups) != 1 || *out.AutoScalingGroups[0].MinSize != 2 || *out.AutoScalingGroups[0].Tags[0].Key != "x" {
		t.Errorf("groups = %+v, %v", out, err)
	}
}

func TestJSONRoundTrip(t *testing.T) {
	t.Parallel()
	created := time.UnixMilli(1767323045500).UTC()
	s := wire.Service{Name: "kms", Protocol: wire.JSONProtocol, TargetPrefix: "TrentService", Operations: []wire.Operation{
		wire.NewOperation("Encrypt", func(_ context.Context, in *v1kms.EncryptInput) (*v1kms.EncryptOutput, error) {
			if *in.EncryptionContext["a"] != "b" {
				return nil, wire.Errorf("InvalidCiphertextException", "context is %v", in.EncryptionContext)
			}
			return &v1kms.EncryptOutput{CiphertextBlob: append([]byte("x"), in.Plaintext...), KeyId: in.KeyId}, nil
		}),
		wire.NewOperation("DescribeKey", func(_ context.Context, in *v1kms.DescribeKeyInput) (*v1kms.DescribeKeyOutput, error) {
			return &v1kms.DescribeKeyOutput{KeyMetadata: &v1kms.KeyMetadata{KeyId: in.KeyId, CreationDate: &created, Enabled: new(false)}}, nil
		}),
	}}
	endpoint := serve(t, s, rootKey(), time.Now)
	client := kms.NewFromConfig(awstest.NewConfig(endpoint, "us-east-1", creds()))
	out, err := client.Encrypt(t.Context(), &kms.EncryptInput{KeyId: new("k"), Plaintext: []byte{0, 255}, EncryptionContext: map[string]string{"a": "b"}})
	if err != nil || string(out.CiphertextBlob) != "x\x00\xff" {
		t.Errorf("Encrypt = %+v, %v", out, err)
	}
	_, err = client.Encrypt(t.Context(), &kms.EncryptInput{KeyId: new("k"), Plaintext: []byte("p"), EncryptionContext: map[string]string{"a": "c"}})
	if code(err) != "InvalidCiphertextException" {
		t.Errorf("a wrong context gave %v", err)
	}
	described, err := client.DescribeKey(t.Context(), &kms.DescribeKeyInput{KeyId: new("k")})
	if err != nil || !described.KeyMetadata.CreationDate.Equal(created) || described.KeyMetadata.Enabled {
		t.Errorf("DescribeKey = %+v, %v", described, err)
	}
}

func TestFormMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		protocol wire.Protocol
		in       any
		form     string
		want     string
	}{
		{wire.EC2QueryProtocol, &v1ec2.CreateVpcInput{}, "CidrBlok=10.0.0.0/16", "UnknownParameter: The parameter CidrBlok is not recognized"},
		{wire.EC2QueryProtocol, &v1ec2.DescribeVpcsInput{}, "Filter.1.Nam.2=x", "UnknownParameter: The parameter Filter.1.Nam.2 is not recognized"},
		{wire.EC2QueryProtocol, &v1ec2.DescribeVpcsInput{}, "VpcId.member.1=x", "UnknownParameter: The parameter VpcId.member.1 is not recognized"},
		{wire.EC2QueryProtocol, &v1ec2.RunInstancesInput{}, "MinCount=x&MaxCount=1", "InvalidParameterValue: Value (x) for parameter MinCount is invalid: not a int64"},
		{wire.EC2QueryProtocol, &v1ec2.DeleteVpcInput{}, "", "MissingParameter: The request must contain the parameter VpcId"},
		{wire.QueryProtocol, &v1as.DeleteAutoScalingGroupInput{}, "AutoScalingGroupName=", "ValidationError: 1 validation error detected: Value '' at 'autoScalingGroupName' failed to satisfy constraint: Member must have length greater than or equal to 1"},
		{wire.QueryProtocol, &v1as.DeleteAutoScalingGroupInput{}, "AutoScalingGroupName=a&AutoScalingGroupName=b", "MalformedQueryString: the parameter AutoScalingGroupName is given 2 times"},
		{wire.QueryProtocol, &v1as.CreateAutoScalingGroupInput{}, "Tags.1.Key=x", "ValidationError: The parameter Tags.1.Key is not recognized"},
	} {
		form, err := url.ParseQuery(c.form)
		if err != nil {
			t.Fatal(err)
		}
		err = wire.DecodeForm(c.protocol, form, c.in)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", c.form, err, c.want)
		}
	}
}

func TestListsKeepTheirNumbersOrder(t *testing.T) {
	t.Parallel()
	in := &v1ec2.DescribeVpcsInput{}
	form := url.Values{"VpcId.2": {"b"}, "VpcId.11": {"c"}, "VpcId.1": {"a"}}
	if err := wire.DecodeForm(wire.EC2QueryProtocol, form, in); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]*string{new("a"), new("b"), new("c")}, in.VpcIds); d != "" {
		t.Error(d)
	}
}

func TestErrorsReachTheClient(t *testing.T) {
	t.Parallel()
	tags := wire.NewOperation("CreateTags", func(context.Context, *v1ec2.CreateTagsInput) (*v1ec2.CreateTagsOutput, error) {
		return nil, errors.New("a secret detail")
	})
	vpc := wire.NewOperation("DeleteVpc", func(context.Context, *v1ec2.DeleteVpcInput) (*v1ec2.DeleteVpcOutput, error) {
		return nil, wire.Errorf("InvalidVpcID.NotFound", "no <vpc>")
	})
	client := ec2Client(serve(t, ec2Service(tags, vpc), rootKey(), time.Now))
	_, err := client.DeleteVpc(t.Context(), &ec2.DeleteVpcInput{VpcId: new("vpc-1")})
	if code(err) != "InvalidVpcID.NotFound" || !strings.Contains(err.Error(), "no <vpc>") || !strings.Contains(err.Error(), "req-1") {
		t.Errorf("DeleteVpc = %v", err)
	}
	_, err = client.DeleteVpc(t.Context(), &ec2.DeleteVpcInput{VpcId: new("vpc-1"), DryRun: new(true)})
	if code(err) != "DryRunOperation" {
		t.Errorf("dry run = %v", err)
	}
	_, err = client.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{"a"}, Tags: []types.Tag{{Key: new("k")}}})
	if code(err) != "InternalError" || strings.Contains(err.Error(), "secret") {
		t.Errorf("CreateTags = %v", err)
	}
	_, err = client.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{})
	if code(err) != "InvalidAction" {
		t.Errorf("an unknown action = %v", err)
	}
}

func TestSignatures(t *testing.T) {
	t.Parallel()
	op := wire.NewOperation("DeleteVpc", func(context.Context, *v1ec2.DeleteVpcInput) (*v1ec2.DeleteVpcOutput, error) {
		return &v1ec2.DeleteVpcOutput{}, nil
	})
	temporary := oneKey{wire.AccessKey{Secret: testSecret, Token: "tok", Expires: time.Now().Add(time.Hour), Caller: wire.Caller{Root: true}}}
	old := temporary
	old.key.Expires = time.Now().Add(-time.Second)
	for _, c := range []struct {
		name              string
		keys              oneKey
		id, secret, token string
		region            string
		now               func() time.Time
		want              string
	}{
		{name: "right", keys: rootKey(), id: testKey, secret: testSecret},
		{name: "right token", keys: temporary, id: testKey, secret: testSecret, token: "tok"},
		{name: "wrong secret", keys: rootKey(), id: testKey, secret: "other", want: "SignatureDoesNotMatch"},
		{name: "wrong key", keys: rootKey(), id: "AKIAOTHER", secret: testSecret, want: "AuthFailure"},
		{name: "wrong token", keys: temporary, id: testKey, secret: testSecret, token: "no", want: "AuthFailure"},
		{name: "no token", keys: temporary, id: testKey, secret: testSecret, want: "AuthFailure"},
		{name: "expired token", keys: old, id: testKey, secret: testSecret, token: "tok", want: "RequestExpired"},
		{name: "wrong region", keys: rootKey(), id: testKey, secret: testSecret, region: "eu-west-1", want: "SignatureDoesNotMatch"},
		{name: "skewed clock", keys: rootKey(), id: testKey, secret: testSecret, now: func() time.Time { return time.Now().Add(time.Hour) }, want: "RequestExpired"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			now := c.now
			if now == nil {
				now = time.Now
			}
			endpoint := serve(t, ec2Service(op), c.keys, now)
			region := "us-east-1"
			if c.region != "" {
				region = c.region
			}
			client := ec2.NewFromConfig(awstest.NewConfig(endpoint, region, credentials.NewStaticCredentialsProvider(c.id, c.secret, c.token)))
			_, err := client.DeleteVpc(t.Context(), &ec2.DeleteVpcInput{VpcId: new("vpc-1")})
			if code(err) != c.want || (c.want == "") != (err == nil) {
				t.Errorf("got %v, want code %q", err, c.want)
			}
		})
	}
	endpoint := serve(t, ec2Service(op), rootKey(), time.Now)
	resp, err := http.Post(endpoint, "application/x-www-form-urlencoded", strings.NewReader("Action=DeleteVpc&VpcId=v"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("an unsigned request is answered with %s", resp.Status)
	}
}

func TestCLI(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("aws")
	if err != nil {
		t.Skip("the AWS CLI is not on this machine: its wire shapes are not judged here")
	}
	op := wire.NewOperation("DescribeVpcs", func(_ context.Context, in *v1ec2.DescribeVpcsInput) (*v1ec2.DescribeVpcsOutput, error) {
		if len(in.Filters) == 1 && *in.Filters[0].Values[1] == "b" {
			return &v1ec2.DescribeVpcsOutput{Vpcs: []*v1ec2.Vpc{{VpcId: new("vpc-1")}}}, nil
		}
		return &v1ec2.DescribeVpcsOutput{}, nil
	})
	endpoint := serve(t, ec2Service(op), rootKey(), time.Now)
	for args, want := range map[string]string{
		"describe-vpcs --query Vpcs --output json":                                     "[]",
		"describe-vpcs --filters Name=x,Values=a,b --query Vpcs[].VpcId --output text": "vpc-1",
	} {
		cmd := exec.CommandContext(t.Context(), path, append([]string{"--endpoint-url", endpoint, "ec2"}, strings.Fields(args)...)...)
		cmd.Env = append(cmd.Environ(), "AWS_ACCESS_KEY_ID="+testKey, "AWS_SECRET_ACCESS_KEY="+testSecret, "AWS_DEFAULT_REGION=us-east-1", "AWS_CONFIG_FILE=/nonexistent")
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("aws ec2 %s: %v: %q, want %q", args, err, got, want)
		}
	}
}

func FuzzDecodeForm(f *testing.F) {
	f.Add("TagSpecification.1.Tag.1.Key=a&MinCount=1&MaxCount=1")
	f.Add("BlockDeviceMapping.1.Ebs.VolumeSize=9223372036854775808")
	f.Add("a..b=&.=&1=")
	f.Fuzz(func(_ *testing.T, text string) {
		form, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		_ = wire.DecodeForm(wire.EC2QueryProtocol, form, &v1ec2.RunInstancesInput{})
		_ = wire.DecodeForm(wire.QueryProtocol, form, &v1as.CreateAutoScalingGroupInput{})
	})
}

func FuzzDecodeJSON(f *testing.F) {
	f.Add([]byte(`{"KeyId":"k","Plaintext":"` + base64.StdEncoding.EncodeToString([]byte("x")) + `","EncryptionContext":{"a":"b"}}`))
	f.Add([]byte(`{"KeyId":null,"DryRun":1e400}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		in := &v1kms.EncryptInput{}
		if wire.DecodeJSON(body, in) != nil {
			return
		}
		again, err := wire.EncodeJSON(in)
		if err != nil {
			t.Fatal(err)
		}
		back := &v1kms.EncryptInput{}
		if err := wire.DecodeJSON(again, back); err != nil {
			t.Fatalf("%s does not decode: %v", again, err)
		}
	})
}

type authorizerFunc func(context.Context, wire.AccessCheck) error

func (f authorizerFunc) Authorize(ctx context.Context, c wire.AccessCheck) error { return f(ctx, c) }

func TestAuthorizeByCaller(t *testing.T) {
	t.Parallel()
	allow := authorizerFunc(func(context.Context, wire.AccessCheck) error { return nil })
	user := wire.Caller{Account: "000000000000", ARN: "arn:aws:iam::000000000000:user/u"}

	for _, tc := range []struct {
		name       string
		caller     wire.Caller
		authorizer wire.Authorizer
		allowed    bool
	}{
		{"root", wire.Caller{Root: true}, nil, true},
		{"the region itself", wire.SystemCaller(), nil, true},
		{"user with an authorizer", user, allow, true},
		{"user without an authorizer", user, nil, false},
		{"no caller", wire.Caller{}, nil, false},
		{"no caller, with an authorizer", wire.Caller{}, allow, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			if tc.caller != (wire.Caller{}) {
				ctx = wire.WithCaller(ctx, tc.caller)
			}

			if tc.authorizer != nil {
				ctx = wire.WithAuthorizer(ctx, tc.authorizer)
			}

			err := wire.Authorize(ctx, wire.AccessCheck{Action: "ec2:RunInstances"})
			if refused := new(wire.Error); (err == nil) != tc.allowed || err != nil && !errors.As(err, &refused) {
				t.Errorf("Authorize returned %v", err)
			}
		})
	}
}
