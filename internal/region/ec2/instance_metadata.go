// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// Credentials are temporary credentials of an instance's role.
type Credentials struct {
	AccessKeyID     string
	SecretAccessKey string
	Token           string    // session token
	Expiration      time.Time // end of their validity
}

// Metadata is the data source of the instance metadata service. Its methods may be called concurrently.
type Metadata struct {
	service          *Service
	issueCredentials func(instanceID, role string) (Credentials, error)

	mu     sync.Mutex
	cached map[string]cachedCredentials
}

type cachedCredentials struct {
	Credentials
	issuedAt time.Time
}

// Metadata returns the data source of the instance metadata service. issue returns new credentials for an
// instance's role; they are reused until an hour before they expire.
func (s *Service) Metadata(issue func(instanceID, role string) (Credentials, error)) *Metadata {
	return &Metadata{service: s, issueCredentials: issue, cached: map[string]cachedCredentials{}}
}

// FindInstance returns the id of the live instance with a private address in a VPC.
func (m *Metadata) FindInstance(vpc string, addr netip.Addr) (string, bool) {
	m.service.store.Lock()
	defer m.service.store.Unlock()
	want := addr.String()

	for id, i := range m.service.st.Instances {
		if str(i.VpcId) == vpc && str(i.PrivateIpAddress) == want && isLive(i) {
			return id, true
		}
	}

	return "", false
}

// TokenOptions returns whether the requests of an instance need a session token (IMDSv2), and whether its
// metadata service is enabled at all.
func (m *Metadata) TokenOptions(id string) (tokensRequired, enabled bool) {
	m.service.store.Lock()
	defer m.service.store.Unlock()
	i := m.service.st.Instances[id]
	if i == nil || i.MetadataOptions == nil {
		return true, false
	}

	o := i.MetadataOptions

	return str(o.HttpTokens) != "optional", str(o.HttpEndpoint) != "disabled"
}

// GetValue returns the value at a path such as meta-data/instance-id, and whether there is one.
func (m *Metadata) GetValue(id, path string) ([]byte, bool, error) {
	tree, role := m.metadataTree(id)
	if name, ok := strings.CutPrefix(path, "meta-data/iam/security-credentials/"); ok && name == role &&
		role != "" {
		v, err := m.roleCredentials(id, role)
		return v, err == nil, err
	}

	if path == publicKeysPath { // not a usual directory: the entry has the name of the key pair
		name := m.keyName(id)
		return []byte("0=" + name), name != "", nil
	}

	v, ok := tree[path]

	return []byte(v), ok, nil
}

// publicKeysPath is the directory of the instance's public keys.
const publicKeysPath = "meta-data/public-keys"

// keyName returns the name of the key pair that an instance was launched with; empty if there is none.
func (m *Metadata) keyName(id string) string {
	m.service.store.Lock()
	defer m.service.store.Unlock()
	if i := m.service.st.Instances[id]; i != nil && isLive(i) {
		return str(i.KeyName)
	}

	return ""
}

// ListPaths returns all paths that have a value, sorted.
func (m *Metadata) ListPaths(id string) []string {
	tree, _ := m.metadataTree(id)
	return sortedKeys(tree)
}

// roleCredentials returns the credentials document that SDKs read.
func (m *Metadata) roleCredentials(id, role string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := id + "/" + role
	now := m.service.cfg.Now()
	have, ok := m.cached[key]
	if !ok || have.Expiration.Sub(now) < time.Hour {
		c, err := m.issueCredentials(id, role)
		if err != nil {
			return nil, fmt.Errorf("issue credentials of role %s to %s: %w", role, id, err)
		}

		have = cachedCredentials{c, now}
		m.cached[key] = have
	}

	return json.MarshalIndent(map[string]string{
		"Code":            "Success",
		"LastUpdated":     have.issuedAt.UTC().Format(time.RFC3339),
		"Type":            "AWS-HMAC",
		"AccessKeyId":     have.AccessKeyID,
		"SecretAccessKey": have.SecretAccessKey,
		"Token":           have.Token,
		"Expiration":      have.Expiration.UTC().Format(time.RFC3339),
	}, "", "  ")
}

// metadataTree returns all values of an instance by path, except the credentials document, and the name of
// its role.
func (m *Metadata) metadataTree(id string) (map[string]string, string) {
	s := m.service
	s.store.Lock()
	defer s.store.Unlock()
	i := s.st.Instances[id]
	if i == nil || !isLive(i) {
		return nil, ""
	}

	s.st.refreshInstance(i)
	x := s.st.Extra[id]
	out := map[string]string{}
	meta := func(path, value string) {
		if value != "" {
			out["meta-data/"+path] = value
		}
	}

	for path, v := range map[string]string{
		"ami-id":                         str(i.ImageId),
		"ami-launch-index":               strconv.FormatInt(*i.AmiLaunchIndex, 10),
		"ami-manifest-path":              "(unknown)",
		"hostname":                       s.st.localHostname(i),
		"local-hostname":                 s.st.localHostname(i),
		"local-ipv4":                     str(i.PrivateIpAddress),
		"public-hostname":                str(i.PublicDnsName),
		"public-ipv4":                    str(i.PublicIpAddress),
		"instance-action":                "none",
		"instance-id":                    id,
		"instance-life-cycle":            instanceLifeCycle(i),
		"instance-type":                  str(i.InstanceType),
		"placement/availability-zone":    str(i.Placement.AvailabilityZone),
		"placement/region":               s.cfg.Region,
		"placement/availability-zone-id": s.cfg.zoneID(str(i.Placement.AvailabilityZone)),
		"profile":                        "default-hvm",
		"reservation-id":                 x.ReservationID,
		"services/domain":                "amazonaws.com",
		"services/partition":             "aws",
	} {
		meta(path, v)
	}

	addInterruptionMetadata(x, meta)
	if name := str(i.KeyName); name != "" {
		meta("public-keys/0/openssh-key", x.PublicKey)
	}

	m.addNetworkMetadata(i, meta)

	for _, t := range i.Tags {
		if str(i.MetadataOptions.InstanceMetadataTags) == "enabled" {
			out["meta-data/tags/instance/"+str(t.Key)] = str(t.Value)
		}
	}

	out["dynamic/instance-identity/document"] = m.identityDocument(i)
	if data, err := base64.StdEncoding.DecodeString(x.UserData); err == nil && len(data) > 0 {
		out["user-data"] = string(data)
	}

	return out, m.addRoleMetadata(i, meta)
}

// instanceLifeCycle returns the purchasing option of an instance: spot or on-demand.
func instanceLifeCycle(i *sdk.Instance) string {
	if l := str(i.InstanceLifecycle); l != "" {
		return l
	}

	return "on-demand"
}

// identityDocument returns the instance identity document. It is not signed, because the region has no key of
// AWS.
func (m *Metadata) identityDocument(i *sdk.Instance) string {
	b, err := json.MarshalIndent(map[string]any{
		"accountId":               m.service.cfg.Account,
		"architecture":            str(i.Architecture),
		"availabilityZone":        str(i.Placement.AvailabilityZone),
		"billingProducts":         nil,
		"devpayProductCodes":      nil,
		"marketplaceProductCodes": nil,
		"imageId":                 str(i.ImageId),
		"instanceId":              str(i.InstanceId),
		"instanceType":            str(i.InstanceType),
		"kernelId":                nil,
		"ramdiskId":               nil,
		"pendingTime": i.LaunchTime.UTC().Format(
			time.RFC3339,
		),
		"privateIp": str(i.PrivateIpAddress),
		"region":    m.service.cfg.Region,
		"version":   "2017-09-30",
	}, "", "  ")
	if err != nil {
		return ""
	}

	return string(b)
}

// addRoleMetadata adds the values about the instance's role and returns the role's name.
func (m *Metadata) addRoleMetadata(i *sdk.Instance, meta func(path, value string)) string {
	if i.IamInstanceProfile == nil || m.service.cfg.Profiles == nil {
		return ""
	}

	p, ok := m.service.cfg.Profiles.InstanceProfile(str(i.IamInstanceProfile.Arn))
	if !ok {
		return ""
	}

	info, err := json.MarshalIndent(map[string]string{
		"Code":               "Success",
		"LastUpdated":        i.LaunchTime.UTC().Format(time.RFC3339),
		"InstanceProfileArn": p.ARN,
		"InstanceProfileId":  p.ID,
	}, "", "  ")
	if err == nil {
		meta("iam/info", string(info))
	}

	if p.Role != "" {
		meta("iam/security-credentials/"+p.Role, "{}") // GetValue returns the document itself
	}

	return p.Role
}
