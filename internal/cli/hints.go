// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
)

// errorHints returns the hints of err. An error of an AWS call without a hint gets the one of its cause:
// credentials, clock, permissions, region, bucket or network.
func errorHints(err error) []string {
	hints := diag.Hints(err)
	_, isCall := errors.AsType[*smithy.OperationError](err)
	_, isProfile := errors.AsType[config.SharedConfigProfileNotExistError](err)
	if isProfile || len(hints) > 0 || !isCall {
		return hints
	}

	f := newAWSFailure(err)
	for _, rule := range awsHintRules() {
		if rule.matches(f) {
			return []string{rule.hint(f)}
		}
	}

	return nil
}

// awsFailure is what the hints for a failed call depend on.
type awsFailure struct {
	// code and message are AWS's; empty if AWS did not answer.
	code, message string
	// text is the whole error in plain words.
	text string
}

func newAWSFailure(err error) awsFailure {
	f := awsFailure{text: plainerror.Text(err.Error())}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		f.code = api.ErrorCode()
		f.message = api.ErrorMessage()
	}

	return f
}

// awsHintRule gives the next step for the failures that it matches.
type awsHintRule struct {
	matches func(awsFailure) bool
	hint    func(awsFailure) string
}

// awsHintRules returns the rules in the order in which they are tried.
func awsHintRules() []awsHintRule {
	const localRegion = `; for the local region: eval "$(slipway region env)"`

	return []awsHintRule{
		{textContains("no AWS credentials are set"), say(
			"set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or log in with: aws sso login" + localRegion,
		)},
		{isClockSkew, say("set the clock of this machine: AWS refuses requests that are more than 5 minutes off; see: timedatectl")},
		{codeIs("ExpiredToken", "ExpiredTokenException", "RequestExpired"), say(
			"the temporary credentials have expired: get new ones, for example with: aws sso login",
		)},
		{textContains("SSO session has expired"), say("log in again with: aws sso login")},
		{textContains("get AWS credentials: "), say("check the profile in ~/.aws/config: AWS_PROFILE or --profile selects it")},
		{isScopedElsewhere, hintForWrongScope},
		{codeIs(wrongCredentialCodes()...), say(
			`check AWS_PROFILE or AWS_ACCESS_KEY_ID; each local region has keys of its own: eval "$(slipway region env)"`,
		)},
		{codeIs(wrongRegionCodes()...), hintForWrongRegion},
		{codeIs("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "Forbidden", "AllAccessDisabled"), say(
			"ask an administrator for the policy that this prints: slipway iam operator-policy NAME " +
				"(to delete the KMS key with --deletion); " +
				"see who you are with: aws sts get-caller-identity",
		)},
		{codeIs("OptInRequired", "AuthorizationError"), say("enable the region or the service in the AWS account, or give another --region")},
		{codeIs("NoSuchBucket"), say("check the bucket in the URL, or create it with: slipway state init")},
		{codeIs("RequestLimitExceeded", "Throttling", "ThrottlingException", "SlowDown"), say(
			"AWS limits the rate of calls of the account: rerun the command in a minute",
		)},
		{codeIs("VolumeModificationRateExceeded"), say(
			"EBS modifies a volume at most four times in 24 hours: rerun the command after the time in its message; what was done is kept",
		)},
		{textContains("connection refused"), say(
			`nothing answers there: see AWS_ENDPOINT_URL; for the local region: slipway region start, then eval "$(slipway region env)"`,
		)},
		{textContains("is not in the DNS"), say("check the region's name in --region, AWS_REGION and the manifest, and AWS_ENDPOINT_URL; or the DNS of this machine")},
		{textContains("AWS_ENDPOINT_URL"), say("write it as https://HOST or http://HOST:PORT, or unset it")},
		{textContains("certificate is not valid"), say("trust the authority with AWS_CA_BUNDLE=FILE, and check AWS_ENDPOINT_URL and the proxy")},
		{textContains("no answer", "no route to host", "network is unreachable", "connection reset", "ends too early"), say(
			"check the network, HTTPS_PROXY and AWS_ENDPOINT_URL, then rerun: what was done is kept",
		)},
	}
}

// say returns a hint that is always the same.
func say(hint string) func(awsFailure) string {
	return func(awsFailure) string { return hint }
}

func textContains(parts ...string) func(awsFailure) bool {
	return func(f awsFailure) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(f.text, part) })
	}
}

func codeIs(codes ...string) func(awsFailure) bool {
	return func(f awsFailure) bool { return slices.Contains(codes, f.code) }
}

// isClockSkew matches the codes of the services for a time that differs too much. Most of them call it a
// wrong signature.
func isClockSkew(f awsFailure) bool {
	if f.code == "RequestTimeTooSkewed" || f.code == "RequestInTheFuture" {
		return true
	}

	return strings.Contains(f.message, "Signature expired") || strings.Contains(f.message, "Signature not yet current")
}

// isScopedElsewhere matches a request that was signed for another region than the endpoint's.
func isScopedElsewhere(f awsFailure) bool {
	return strings.Contains(f.message, "Credential should be scoped to")
}

// hintForWrongScope names the region of the endpoint, if AWS's message contains it.
func hintForWrongScope(f awsFailure) string {
	scoped := regexp.MustCompile(`region:? '?([a-z]+-[a-z0-9-]+)`).FindStringSubmatch(f.message)
	if scoped == nil {
		return "check the region: --region, AWS_REGION, and region in the configuration file"
	}

	return "the endpoint is in " + scoped[1] + ": omit --region, or give --region " + scoped[1]
}

// wrongCredentialCodes returns the error codes of AWS services for credentials that do not exist.
func wrongCredentialCodes() []string {
	return []string{
		"InvalidAccessKeyId",
		"SignatureDoesNotMatch",
		"InvalidClientTokenId",
		"InvalidSignatureException",
		"UnrecognizedClientException",
		"IncompleteSignature",
		"AuthFailure",
		"InvalidToken",
	}
}

// wrongRegionCodes returns the codes of S3 for a bucket of another region.
func wrongRegionCodes() []string {
	return []string{
		"PermanentRedirect",
		"MovedPermanently",
		"TemporaryRedirect",
		"AuthorizationHeaderMalformed",
		"IllegalLocationConstraintException",
	}
}

// hintForWrongRegion names the region that AWS's message expects, if it contains one.
func hintForWrongRegion(f awsFailure) string {
	expected := regexp.MustCompile(`expecting '([a-z0-9-]+)'`).FindStringSubmatch(f.message)
	if expected == nil {
		return "the bucket is in another region: give it with --region or AWS_REGION; see: aws s3api get-bucket-location"
	}

	return "the bucket is in another region: give --region " + expected[1] + " or AWS_REGION=" + expected[1]
}
